# Builds the project from SOURCES: a pass plugin for the LLVM that LLVM_DIR names.
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()

find_package(LLVM REQUIRED CONFIG)
find_package(shmbridge REQUIRED CONFIG)
message(STATUS "LLVM ${LLVM_PACKAGE_VERSION} in ${LLVM_DIR}")

# No LLVM library is linked: the symbols are those of the compiler that loads the plugin.
add_library(${PROJECT_NAME} MODULE ${SOURCES})
target_compile_features(${PROJECT_NAME} PRIVATE cxx_std_17)
target_compile_options(${PROJECT_NAME} PRIVATE
    -Wall -Wextra $<$<NOT:$<BOOL:${LLVM_ENABLE_RTTI}>>:-fno-rtti>)
target_include_directories(${PROJECT_NAME} SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
target_link_libraries(${PROJECT_NAME} PRIVATE shmbridge::shmbridge)
separate_arguments(definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_definitions(${PROJECT_NAME} PRIVATE ${definitions})
set_target_properties(${PROJECT_NAME} PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden)
