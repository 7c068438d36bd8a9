/* Numbers of the wire format that Python needs, too. */
#ifndef SHMB_LIMITS_H
#define SHMB_LIMITS_H

enum {
    MAX_CHANNELS = 256,
    MAX_WORKERS = 64, /* hosts that share a name */
    SESSION_BYTES = 16,
    SESSION_AT = 24 /* in the superblock */
};

/* Lock bytes of the segment file (open-file-description locks): the host's, then one per channel,
 * then the host's while its loop runs, which only messages go by, then the one of who removes the
 * segment of a dead host. */
enum { HOST_BYTE = 0, CHANNEL_BYTE = 1, LOOP_BYTE = CHANNEL_BYTE + MAX_CHANNELS, SWEEPER_BYTE };

#endif
