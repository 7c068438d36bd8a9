// The official Verifier, for test_header.py.
#include "message_generated.h"

extern "C" bool header_verify(const uint8_t *bytes, size_t size) {
    flatbuffers::Verifier verifier(bytes, size);
    return shmbridge_message::VerifyLayoutBuffer(verifier);
}
