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
    int r = plugin_check_table(p->name, entry(), &p->table, err);
    if (r == 0)
        p->api = &p->table;
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
    return plugin_check_caps(p->name, p->api, &p->caps, err);
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

static enum asking asking_of(const struct plugin *plugin)
{
    if (!plugin_asks(plugin) || plugin->caps.ask == PROVIDER_ASK_NONE)
        return ASKING_NONE;
    return plugin->caps.ask == PROVIDER_ASK_BY_ID ? ASKING_BY_ID : ASKING_BY_KEY;
}

struct capability plugin_capability(const struct plugin *plugin, int64_t call_ms)
{
    const struct provider_caps *caps = &plugin->caps;

    return (struct capability){.dedup = caps->dedup != PROVIDER_DEDUP_NONE,
                               .dedup_window_ms = caps->dedup_window_ms,
                               .call_ms = call_ms,
                               .asking = asking_of(plugin),
                               .absence_proves = caps->absence_proves,
                               .ask_delay_ms = caps->ask_delay_ms,
                               .ask_window_ms = caps->ask_window_ms};
}
