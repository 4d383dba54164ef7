/* Stands in for a Snapdragon's libcdsprpc.so: memory with a file descriptor, and a line in $FAKE_RPCMEM_LOG for each call. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct { void *start; size_t size; int fd; } blocks[4096];
static int n_blocks;

static void note(const char *call, long n) {
    FILE *log = fopen(getenv("FAKE_RPCMEM_LOG"), "a");
    if (log) {
        fprintf(log, "%s %ld\n", call, n);
        fclose(log);
    }
}

void *rpcmem_alloc(int heap, unsigned flags, int size) {
    const char *most = getenv("FAKE_RPCMEM_MOST");
    if (heap != 25 || flags != 1 || (most && size > atoi(most)) || n_blocks == 4096) return NULL;
    int fd = memfd_create("rpcmem", 0);
    if (fd < 0 || ftruncate(fd, size)) return NULL;
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED) return NULL;
    blocks[n_blocks].start = start;
    blocks[n_blocks].size = size;
    blocks[n_blocks++].fd = fd;
    note("alloc", size);
    return start;
}

int rpcmem_to_fd(void *start) {
    for (int i = 0; i < n_blocks; i++)
        if (blocks[i].start == start) return blocks[i].fd;
    return -1;
}

void rpcmem_free(void *start) {
    for (int i = 0; i < n_blocks; i++)
        if (blocks[i].start == start) {
            munmap(start, blocks[i].size);
            close(blocks[i].fd);
            blocks[i].start = NULL;
            note("free", (long)blocks[i].size);
            return;
        }
    note("free of nothing", 0);
}
