/* What is no segment of ours is refused at attach with its own error: garbage, short, another
 * version, mode or owner. */
#include "bridge.h"

static char name[64], path[NAME_ROOM];

static int make(const void *bytes, size_t size, mode_t mode) {
    unlink(path);
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && fchmod(fd, mode) == 0);
    return fd;
}

static void expect(int fd, shmb_status status, const char *message) {
    char url[100];
    snprintf(url, sizeof url, "shm://%s?connect_timeout=0", name);
    open_fails(url, NULL, status, message);
    close(fd);
    unlink(path);
}

static uint8_t whole[1 << 20];

/* A superblock that says of itself what is right, but for one field. */
#define EXPECT_BLOCK(field, value, status, message)                                                \
    do {                                                                                           \
        struct superblock changed = good;                                                          \
        changed.field = (value);                                                                   \
        memcpy(whole, &changed, sizeof changed);                                                   \
        expect(make(whole, good.size, 0600), (status), (message));                                 \
    } while (0)

int main(void) {
    struct superblock good = {
        .channels = 2, .slots = 2, .meta_bytes = {256, 256}, .body_bytes = {4096, 4096}};
    CHECK(shmb_segment_plan(&good) && good.size <= sizeof whole);
    snprintf(name, sizeof name, "refused-%d", (int)getpid());
    shmb_segment_path(name, NULL, path);

    expect(make("", 0, 0600), SHMB_CORRUPT, "0 bytes");
    expect(make("short", 5, 0600), SHMB_CORRUPT, "5 bytes");
    memset(whole, 0xa5, sizeof whole);
    expect(make(whole, 100000, 0600), SHMB_CORRUPT, "is not a shmbridge segment");
    memset(whole, 0, sizeof whole);
    expect(make(whole, 100000, 0600), SHMB_CORRUPT, "is not a shmbridge segment");
    memcpy(whole, &good, sizeof good);
    expect(make(whole, 256, 0600), SHMB_CORRUPT, "256 bytes");
    expect(make(whole, good.size - 1, 0600), SHMB_CORRUPT, "bytes");
    expect(make(whole, good.size + 4096, 0600), SHMB_CORRUPT, "bytes");
    expect(make(whole, good.size, 0644), SHMB_PERMISSION, "mode 644");
    expect(make(whole, good.size, 0660), SHMB_PERMISSION, "mode 660");
    expect(make(whole, good.size, 0600), SHMB_NO_HOST, "died"); /* right, but nobody's */
    EXPECT_BLOCK(version, 2, SHMB_INCOMPATIBLE, "version 2 with features 0");
    EXPECT_BLOCK(version, 4, SHMB_INCOMPATIBLE, "features 0, this library version 3");
    EXPECT_BLOCK(features, 4, SHMB_INCOMPATIBLE, "features 4");
    EXPECT_BLOCK(channels, 0, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(channels, 257, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(slots, 3, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(slots, 64, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(meta_bytes[0], 257, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(body_bytes[1], UINT64_MAX - 63, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(channel_offset, 256, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(channel_stride, 0, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(slot_offset, 1u << 30, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(slot_stride, good.slot_stride * 2, SHMB_CORRUPT, "contradict");
    EXPECT_BLOCK(size, good.size + 1, SHMB_CORRUPT, "contradict");
    memcpy(whole, &good, sizeof good);
    if (geteuid() == 0) { /* only root can make another's file */
        int fd = make(whole, good.size, 0600);
        CHECK(fchown(fd, 65534, 65534) == 0);
        expect(fd, SHMB_PERMISSION, "belongs to user 65534");
    }
}
