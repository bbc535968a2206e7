#include "worker/engine/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/core/err.h"
#include "worker/core/near.h"
#include "worker/engine/plugin_host.h"

#ifndef POSTRIDER_PROVIDER_DIR
#define POSTRIDER_PROVIDER_DIR "/usr/local/lib/postrider/providers"
#endif

/* Version 1.0 ends with `judge`; later members are only ever appended. */
#define PROVIDER_SIZE_1_0 (offsetof(struct provider, judge) + sizeof(((struct provider *)0)->judge))

static const char so_suffix[] = ".so";

/* ---- where ---------------------------------------------------------------------------------- */

char *plugin_dir(void)
{
    const char *wanted = getenv("POSTRIDER_PROVIDER_DIR");
    char exe[PATH_MAX];
    char *beside = NULL;
    struct stat st;
    ssize_t n;

    if (wanted && *wanted)
        return strdup(wanted);
    n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n > 0) {
        exe[n] = '\0';
        *(strrchr(exe, '/') ? strrchr(exe, '/') : exe) = '\0';
        if (asprintf(&beside, "%s/providers", exe) < 0)
            return NULL;
        if (stat(beside, &st) == 0 && S_ISDIR(st.st_mode))
            return beside;
        free(beside);
    }
    return strdup(POSTRIDER_PROVIDER_DIR);
}

static bool bare_name_ok(const char *name)
{
    size_t len = strlen(name);

    return len > 0 && len < NAME_MAX - sizeof(so_suffix) &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == len;
}

/* Names the plugin in `dir` that was probably meant. */
static void hint_near(const char *dir, const char *name, struct err *err)
{
    DIR *d = opendir(dir);
    char *best = NULL;

    for (struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        struct near near;

        if (len <= strlen(so_suffix) || strcmp(e->d_name + len - strlen(so_suffix), so_suffix) != 0)
            continue;
        e->d_name[len - strlen(so_suffix)] = '\0';
        near_init(&near, name);
        if (best)
            near_try(&near, best);
        near_try(&near, e->d_name);
        if (!near_best(&near) || near_best(&near) == best)
            continue;
        free(best);
        best = strdup(e->d_name);
    }
    if (d)
        closedir(d);
    if (best)
        err_hint(err, "did you mean \"%s\"?", best);
    else
        err_hint(err, "give a path with a slash, or set POSTRIDER_PROVIDER_DIR");
    free(best);
}

static int find_file(const char *dir, const char *name, char **ret_path, struct err *err)
{
    char *path = NULL, *searched = NULL;

    if (strchr(name, '/')) {
        *ret_path = strdup(name);
        return *ret_path ? 0 : -ENOMEM;
    }
    if (!bare_name_ok(name)) {
        err_set(err, -EINVAL, "plugin \"%s\": a name has letters, digits, _ and - only", name);
        return -EINVAL;
    }
    searched = dir ? strdup(dir) : plugin_dir();
    if (!searched || asprintf(&path, "%s/%s%s", searched, name, so_suffix) < 0) {
        free(searched);
        return -ENOMEM;
    }
    if (access(path, F_OK) != 0) {
        err_set(err, -ENOENT, "plugin \"%s\": not found in %s", name, searched);
        hint_near(searched, name, err);
        free(path);
        free(searched);
        return -ENOENT;
    }
    free(searched);
    *ret_path = path;
    return 0;
}

/* ---- what was loaded ------------------------------------------------------------------------ */

static int check_version(const char *name, const struct provider *api, struct err *err)
{
    bool newer = api->abi_major > PROVIDER_ABI_MAJOR ||
                 (api->abi_major == PROVIDER_ABI_MAJOR && api->abi_minor > PROVIDER_ABI_MINOR);

    if (api->abi_major == PROVIDER_ABI_MAJOR && !newer)
        return 0;
    err_set(err, -ENOEXEC, "plugin \"%s\": wants ABI %u.%u, this postrider has %u.%u", name,
            api->abi_major, api->abi_minor, PROVIDER_ABI_MAJOR, PROVIDER_ABI_MINOR);
    if (newer)
        err_hint(err, "upgrade postrider, or rebuild the plugin with this postrider's provider.h");
    else
        err_hint(err, "rebuild the plugin with this postrider's provider.h");
    return -ENOEXEC;
}

static const char *missing_member(const struct provider *api)
{
    if (!api->name || !*api->name)
        return "name";
    if (!api->open)
        return "open";
    if (!api->close)
        return "close";
    if (!api->describe)
        return "describe";
    if (!api->build)
        return "build";
    return api->judge ? NULL : "judge";
}

static int check_api(const char *name, const struct provider *api, struct err *err)
{
    const char *missing;
    int r;

    if (!api) {
        err_set(err, -ENOEXEC, "plugin \"%s\": " PROVIDER_ENTRY_SYMBOL "() gives nothing", name);
        return -ENOEXEC;
    }
    r = check_version(name, api, err); /* first: another major may mean another layout */
    if (r < 0)
        return r;
    if (api->size < PROVIDER_SIZE_1_0) {
        err_set(err, -ENOEXEC, "plugin \"%s\": its table has %u bytes, ABI %u.%u needs %zu", name,
                api->size, api->abi_major, api->abi_minor, PROVIDER_SIZE_1_0);
        err_hint(err, "set .size = sizeof(struct provider) and rebuild the plugin");
        return -ENOEXEC;
    }
    missing = missing_member(api);
    if (missing) {
        err_set(err, -ENOEXEC, "plugin \"%s\": member \"%s\" is missing", name, missing);
        err_hint(err, "ABI %u.%u asks for every member: complete and rebuild the plugin",
                 PROVIDER_ABI_MAJOR, PROVIDER_ABI_MINOR);
        return -ENOEXEC;
    }
    if (!strchr(name, '/') && strcmp(api->name, name) != 0)
        return err_set(err, -ENOEXEC, "plugin \"%s\": the file holds plugin \"%s\"", name,
                       api->name);
    return 0;
}

static int check_caps(const char *name, const struct provider_caps *caps, struct err *err)
{
    const char *wrong = NULL;

    if (caps->dedup > PROVIDER_DEDUP_REJECT)
        wrong = "dedup is out of range";
    else if (caps->ask != PROVIDER_ASK_NONE)
        wrong = "it claims a look-up this ABI does not have";
    else if (caps->dedup != PROVIDER_DEDUP_NONE && caps->dedup_window_ms <= 0)
        wrong = "de-duplication without a window";
    else if (caps->dedup == PROVIDER_DEDUP_NONE && caps->dedup_window_ms != 0)
        wrong = "a window without de-duplication";
    else if (caps->worst_answer_ms < 0)
        wrong = "worst_answer_ms is negative";
    return wrong ? err_set(err, -ENOEXEC, "plugin \"%s\": bad capabilities: %s", name, wrong) : 0;
}

/* ---- open and close ------------------------------------------------------------------------- */

static int load(struct plugin *p, const char *path, struct err *err)
{
    const struct provider *(*entry)(void) = NULL;

    p->so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!p->so) {
        const char *why = dlerror();
        int code = access(path, F_OK) == 0 ? -ENOEXEC : -ENOENT;

        err_set(err, code, "plugin \"%s\": cannot load: %s", p->name, why ? why : path);
        return code;
    }
    *(void **)&entry = dlsym(p->so, PROVIDER_ENTRY_SYMBOL); /* POSIX's way around the cast */
    if (!entry) {
        err_set(err, -ENOEXEC, "plugin \"%s\": not a postrider plugin (no symbol %s)", p->name,
                PROVIDER_ENTRY_SYMBOL);
        err_hint(err, "export %s() as declared in provider.h", PROVIDER_ENTRY_SYMBOL);
        return -ENOEXEC;
    }
    const struct provider *api = entry();
    int r = check_api(p->name, api, err);
    if (r == 0)
        p->api = api;
    return r;
}

static int configure(struct plugin *p, const char *settings_json, struct err *err)
{
    struct provider_report report = {0};
    int r = p->api->open(&plugin_host, settings_json, &report, &p->self);

    if (r < 0 && report.why) {
        err_set(err, r, "plugin \"%s\": settings%s%s: %s", p->name, *report.setting ? "." : "",
                report.setting, report.why);
        if (report.cure)
            err_hint(err, "%s", report.cure);
    } else if (r < 0 && r != -ENOMEM) {
        err_set(err, r, "plugin \"%s\": refuses its settings and does not say why: %s", p->name,
                strerror(-r));
    } else if (r > 0) {
        r = err_set(err, -ENOEXEC, "plugin \"%s\": open answered %d", p->name, r);
    }
    free(report.setting);
    free(report.why);
    free(report.cure);
    if (r < 0) {
        p->self = NULL; /* nothing was opened */
        return r;
    }
    p->api->describe(p->self, &p->caps);
    return check_caps(p->name, &p->caps, err);
}

int plugin_open(const char *dir, const char *name, const char *settings_json,
                struct plugin **ret_plugin, struct err *err)
{
    struct plugin *p = calloc(1, sizeof(*p));
    char *path = NULL;
    int r = -ENOMEM;

    if (p && (p->name = strdup(name)))
        r = find_file(dir, name, &path, err);
    if (r == 0)
        r = load(p, path, err);
    if (r == 0)
        r = configure(p, settings_json, err);
    free(path);
    if (r < 0) {
        plugin_close(p);
        return r;
    }
    *ret_plugin = p;
    return 0;
}

struct plugin *plugin_close(struct plugin *plugin)
{
    if (!plugin)
        return NULL;
    if (plugin->self)
        plugin->api->close(plugin->self);
    if (plugin->so)
        dlclose(plugin->so);
    free(plugin->name);
    free(plugin);
    return NULL;
}

const char *plugin_name(const struct plugin *plugin)
{
    return plugin->api->name;
}

const struct provider_caps *plugin_caps(const struct plugin *plugin)
{
    return &plugin->caps;
}
