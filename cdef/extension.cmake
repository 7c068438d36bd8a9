# The Python extension shmbridge._native, under pip (scikit-build-core): cffi's code with the core inside, hidden.

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
if(NOT Python_INCLUDE_DIR)
    execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_config_var('INCLUDEPY'))"
                    OUTPUT_VARIABLE Python_INCLUDE_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
if(NOT EXISTS ${Python_INCLUDE_DIR}/Python.h)
    message(FATAL_ERROR "Python.h of Python ${Python_VERSION} was expected in ${Python_INCLUDE_DIR}, and is not there: install "
                        "Python's headers (Debian, Ubuntu: apt-get install python3-dev; Fedora: dnf install python3-devel), "
                        "then try again.")
endif()
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

add_custom_command(
    OUTPUT _native.c
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/build_ffi.py ${CMAKE_CURRENT_BINARY_DIR}/_native.c
    DEPENDS build_ffi.py include/shmbridge.cdef src/host.cdef
    VERBATIM)
add_library(_native MODULE _native.c ${sources})
set_source_files_properties(_native.c PROPERTIES COMPILE_OPTIONS -w) # generated
set_target_properties(_native PROPERTIES INTERPROCEDURAL_OPTIMIZATION ${ipo})
target_link_libraries(_native PRIVATE shmbridge_flags Threads::Threads rt ${CMAKE_DL_LIBS})
# The calls that every message takes, without cffi around them; it calls the core that _native contains.
add_library(_hot MODULE hot.c)
# The limited API of 3.10, so that one wheel serves every Python; a free-threaded one has none.
if(SKBUILD_SABI_VERSION)
    set(suffix .abi3.so)
else()
    execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
                    OUTPUT_VARIABLE suffix OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
foreach(module _native _hot)
    set_target_properties(${module} PROPERTIES PREFIX "" SUFFIX ${suffix} C_VISIBILITY_PRESET hidden
                          LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/extension.map)
    target_compile_definitions(${module} PRIVATE $<$<BOOL:${SKBUILD_SABI_VERSION}>:Py_LIMITED_API=0x030A0000>)
    target_include_directories(${module} PRIVATE include src)
    target_compile_options(${module} PRIVATE -std=c11 -D_GNU_SOURCE)
    # --no-as-needed: auditwheel wants to see libc, even where nothing of it is used
    target_link_options(${module} PRIVATE LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/extension.map
                        LINKER:--no-as-needed)
    target_link_libraries(${module} PRIVATE Python::Module)
    install(TARGETS ${module} DESTINATION .)
endforeach()
# `shmbridge demo` compiles these: the examples against the installed library, the core as real C code.
install(DIRECTORY ../examples DESTINATION . PATTERN build* EXCLUDE PATTERN __pycache__ EXCLUDE)
install(DIRECTORY src DESTINATION .)
