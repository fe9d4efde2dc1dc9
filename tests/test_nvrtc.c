/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=400
 *
 * test_nvrtc: every kernel goes through the front of NVRTC for an H200, and some all the way to its code; skipped where there
 * is no NVRTC. test_nvrtc all: all of them all the way, which takes minutes.
 * test_nvrtc prepare [TIMES]: for tests/cli/nvrtc.sh. Makes a kernel ready on cuda:0 (a fake one), on as many openings of it,
 * and says how that went.
 * test_nvrtc target CAPABILITY: what would be compiled for such a GPU.
 */
#include "device_check.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "collective/gpu/gpu_source.h"
#include "collective/reduce/reduce_kernels.h"
#include "device/nvrtc.h"

static int compiled;
static size_t code_bytes;

/* All the way to the GPU's code. */
static void compile(const struct tti_nvrtc *nvrtc, const struct tti_gpu_program *of)
{
    struct tti_code code = {0};
    char target[TTI_NVRTC_TARGET];
    GOOD(tti_nvrtc_target(nvrtc, 90, target, &error));
    tutti_status status = tti_nvrtc_compile(nvrtc, of->program.source, of->program.name, of->options, target, &code,
                                            &error);
    CHECK_THAT(status == TUTTI_OK && code.count > 1000 && memcmp(code.bytes, "\177ELF", 4) == 0, "%s: %s",
               of->program.name, error.text);
    compiled++;
    code_bytes += code.count;
    tti_free(code.bytes);
}

/* Whatever a compiler has to say of the source is said before it optimises, which takes most of the time. */
static void look_over(const struct tti_nvrtc *nvrtc, const struct tti_gpu_program *of)
{
    const char *options[TTI_GPU_OPTIONS + 2] = {"-arch=sm_90", "-dlto"};
    char log[400] = "";
    size_t bytes = 0;
    int count = 0;
    void *program = NULL;
    for (; of->options[count] != NULL; count++) options[count + 2] = of->options[count];
    CHECK(nvrtc->create(&program, of->program.source, of->program.name, 0, NULL, NULL) == TTI_NVRTC_OK);
    int result = nvrtc->compile(program, count + 2, options);
    if (result != TTI_NVRTC_OK && nvrtc->log_size(program, &bytes) == TTI_NVRTC_OK && bytes <= sizeof log)
        (void)nvrtc->log(program, log);
    CHECK_THAT(result == TTI_NVRTC_OK, "%s: result %d, %zu bytes of log: %s", of->program.name, result, bytes, log);
    (void)nvrtc->destroy(&program);
    compiled++;
}

static bool make_reducer(int type, int column, struct tti_reducer *reducer)
{
    tutti_reduction reduction = (tutti_reduction)column;
    if (column == TTI_KERNEL_SCALED_SUM && tutti_reduction_scaled_sum(3, &reduction, NULL) != TUTTI_OK) return false;
    return tti_reducer_init(reducer, (tutti_type)type, reduction, NULL, 0) == TUTTI_OK;
}

static void compile_all(const struct tti_nvrtc *nvrtc, bool whole)
{
    static const struct {
        tutti_type type;
        int column;
    } some[] = {{TUTTI_F32, TUTTI_SUM}, {TUTTI_BF16, TUTTI_AVG}};
    struct tti_gpu_program made;
    struct tti_reducer reducer;
    for (int many = 0; many < 2; many++) {
        tti_gpu_program_of(TTI_GPU_MOVE, NULL, many, &made);
        compile(nvrtc, &made);
        for (int type = 0; type < TUTTI_TYPE_COUNT; type++)
            for (int column = 0; column < TTI_KERNEL_REDUCTIONS; column++) {
                bool chosen = whole;
                for (size_t i = 0; i < sizeof some / sizeof *some; i++)
                    chosen = chosen || ((int)some[i].type == type && some[i].column == column);
                if (!make_reducer(type, column, &reducer)) continue;
                for (int work = TTI_GPU_FOLD; work <= TTI_GPU_SCAN; work++) {
                    tti_gpu_program_of((enum tti_gpu_work)work, &reducer, many, &made);
                    (chosen ? compile : look_over)(nvrtc, &made);
                }
            }
    }
}

static int prepare(int times)
{
    const struct tti_program program = {
        .name = "mix", .source = "source", .options = (const char *const[]){"-option", NULL}, .function = mix_function};
    for (int i = 0; i < times; i++) {
        tutti_device *handle = NULL;
        const struct tti_kernel *kernel = NULL, *again = NULL;
        if (tutti_device_open("cuda:0", &handle, &error) != TUTTI_OK) return puts(error.text), 1;
        struct tti_device *device = tti_device_take(handle, &error);
        tutti_status status = tti_program_prepare(device, &program, &kernel, &error);
        if (status == TUTTI_OK) status = tti_program_prepare(device, &program, &again, &error);
        puts(status != TUTTI_OK ? error.text : kernel != NULL && kernel == again ? "ready" : "two of one kernel");
        tti_object_give(&device->object);
        if (tutti_device_free(handle, &error) != TUTTI_OK) return puts(error.text), 1;
    }
    return 0;
}

static int tell_target(int capability)
{
    char target[TTI_NVRTC_TARGET];
    const struct tti_nvrtc *nvrtc = tti_nvrtc_load(&error);
    bool good = nvrtc != NULL && tti_nvrtc_target(nvrtc, capability, target, &error) == TUTTI_OK;
    printf("%s\n", good ? target : error.text);
    if (good != tutti_has("nvrtc") && nvrtc == NULL) puts("tutti_has says something else");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "prepare") == 0) return prepare(argc > 2 ? atoi(argv[2]) : 1);
    if (argc > 2 && strcmp(argv[1], "target") == 0) return tell_target(atoi(argv[2]));
    const struct tti_nvrtc *nvrtc = tti_nvrtc_load(&error);
    if (nvrtc == NULL) {
        printf("no kernel can be compiled here: %s\n", error.text);
        return 77;
    }
    int64_t start = tti_now_ns();
    compile_all(nvrtc, argc > 1 && strcmp(argv[1], "all") == 0);
    printf("NVRTC %d.%d: %d programs in %.1f s, %zu KiB of code\n", nvrtc->major, nvrtc->minor, compiled,
           (double)(tti_now_ns() - start) / 1e9, code_bytes / 1024);
    return check_end();
}
