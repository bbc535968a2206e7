/* base.h - a plugin that keeps every rule; each file beside it breaks one. */
#ifndef POSTRIDER_TESTS_BADPLUGINS_BASE_H
#define POSTRIDER_TESTS_BADPLUGINS_BASE_H

#include <stddef.h>

#include "providers/provider.h"

static const struct provider_host *base_host;

static inline int base_open(const struct provider_host *host, const char *settings_json,
                            struct provider_report *report, void **ret_self)
{
    static int self;

    (void)settings_json;
    (void)report;
    base_host = host;
    *ret_self = &self;
    return 0;
}

static inline void base_close(void *self)
{
    (void)self;
}

static inline void base_describe(const void *self, struct provider_caps *ret)
{
    (void)self;
    (void)ret;
}

static inline int base_build(const void *self, const struct provider_msg *msg,
                             struct provider_req *req)
{
    (void)self;
    (void)msg;
    base_host->req_method(req, "POST");
    return base_host->req_url(req, "http://127.0.0.1/");
}

static inline int base_judge(const void *self, const struct provider_reply *reply,
                             struct provider_verdict *verdict)
{
    (void)self;
    (void)reply;
    base_host->verdict(verdict, PROVIDER_UNKNOWN);
    return 0;
}

/* The table a good plugin has; a file overrides what it breaks after BASE_TABLE. */
#define BASE_TABLE(plugin_name)                                                                    \
    {                                                                                              \
        .abi_major = PROVIDER_ABI_MAJOR, .abi_minor = PROVIDER_ABI_MINOR,                          \
        .size = sizeof(struct provider), .name = plugin_name, .open = base_open,                   \
        .close = base_close, .describe = base_describe, .build = base_build, .judge = base_judge,  \
    }

#endif
