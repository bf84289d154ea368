/*
 * Step 11: asks cuGetProcAddress (both versions) for every known name, three flags,
 * many CUDA versions, and looks whether each pointer is an exported symbol of the
 * driver, and which. With --map the table is written as it changes by version.
 * names.txt is the list; the README says how it is made.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"
#include "probe.h"
#include "steps.h"

__asm__(".section .rodata\n"
	".globl names_text\n"
	"names_text:\n"
	".incbin \"names.txt\"\n"
	".byte 0\n"
	".previous\n");
extern const char names_text[];

static const int versions[] = {
	2000,  2010,  2020,  2030,  3000,  3010,  3020,  4000,  4010,  5000,  5050,
	6000,  6050,  7000,  8000,  9000,  9020,  10000, 10010, 10020, 11000, 11010,
	11020, 11030, 11040, 11060, 11070, 11080, 12000, 12010, 12020, 12030, 12040,
	12050, 12060, 12080, 12090, 13000, 13010, 13020, 13030, 13040, 13050};

enum { REPORTED = 60 };

struct tally {
	long long names, exported_names, names_found, queries, found, exact, elsewhere, not_exported,
		first_version_differs;
	int reported, newest; /* the driver's own CUDA version: later ones are not asked */
	FILE *map;
};

static void report(struct tally *tally, const char *name, int flags, int version, const char *what,
		   const char *symbol)
{
	if (tally->reported++ >= REPORTED)
		return;
	record_begin("lookup oddity");
	record_text("name", name);
	record_int("flags", flags);
	record_int("version", version);
	record_text("what", what);
	record_text("symbol", symbol);
	record_end();
}

/* One pointer against the export table of the file it lies in. */
static const char *symbol_of(struct tally *tally, void *pointer, const char *name, int flags, int version)
{
	Dl_info info;

	if (!dladdr(pointer, &info) || !info.dli_sname || info.dli_saddr != pointer) {
		tally->not_exported++;
		report(tally, name, flags, version, "not an exported symbol", "");
		return "?";
	}
	if (!info.dli_fname || !strstr(info.dli_fname, "libcuda")) {
		tally->elsewhere++;
		report(tally, name, flags, version, "not in libcuda", info.dli_fname);
	} else if (dlsym(driver.library, info.dli_sname) == pointer) {
		tally->exact++;
	} else {
		tally->not_exported++;
		report(tally, name, flags, version, "dlsym answers another pointer", info.dli_sname);
	}
	return info.dli_sname;
}

static int query(const char *name, int flags, int version, void **pointer)
{
	int status = 0;

	*pointer = NULL;
	if (driver.cuGetProcAddress_v2)
		return driver.cuGetProcAddress_v2(name, pointer, version, (uint64_t)flags, &status) ==
			       CUDA_SUCCESS && *pointer;
	return CU(cuGetProcAddress, name, pointer, version, (uint64_t)flags) == CUDA_SUCCESS && *pointer;
}

static void one_name(struct tally *tally, const char *name)
{
	int found = 0;

	tally->names++;
	tally->exported_names += dlsym(driver.library, name) != NULL;
	for (int flags = 0; flags < 3; flags++) {
		void *last = NULL, *pointer, *first;
		for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
			if (versions[v] > tally->newest)
				break;
			tally->queries++;
			if (!query(name, flags, versions[v], &pointer))
				pointer = NULL;
			tally->found += pointer != NULL;
			found |= pointer != NULL;
			first = NULL;
			if (driver.cuGetProcAddress_v2 && driver.cuGetProcAddress &&
			    driver.cuGetProcAddress(name, &first, versions[v], (uint64_t)flags) ==
				    CUDA_SUCCESS && first != pointer)
				tally->first_version_differs++;
			if (pointer == last)
				continue;
			last = pointer;
			const char *symbol = pointer
				? symbol_of(tally, pointer, name, flags, versions[v]) : "-";
			if (tally->map)
				fprintf(tally->map, "%s\t%d\t%d\t%s\n", name, flags, versions[v], symbol);
		}
	}
	tally->names_found += found;
}

static void record_tally(const struct tally *tally)
{
	record_begin("lookup");
	record_int("names", tally->names);
	record_int("names_exported", tally->exported_names);
	record_int("names_found", tally->names_found);
	record_int("queries", tally->queries);
	record_int("found", tally->found);
	record_int("pointers_that_are_exports", tally->exact);
	record_int("pointers_not_exported", tally->not_exported);
	record_int("pointers_not_in_libcuda", tally->elsewhere);
	record_int("old_and_new_call_differ", tally->first_version_differs);
	record_end();
}

int step_lookup(void)
{
	struct tally tally = {.map = NULL};
	const char *why = driver_open();
	char name[128];

	if (why || !TRY("lookup", cuInit, 0))
		return EXIT_STEP_FAILED;
	if (!driver.cuGetProcAddress && !driver.cuGetProcAddress_v2) {
		record_note("this driver has no cuGetProcAddress");
		return EXIT_STEP_FAILED;
	}
	if (!TRY("lookup", cuDriverGetVersion, &tally.newest))
		return EXIT_STEP_FAILED;
	if (options.map_path && !(tally.map = fopen(options.map_path, "we")))
		record_note("the map file cannot be written");
	for (const char *at = names_text; *at && left_ms() > 500; at += strcspn(at, "\n") + 1) {
		snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "\n"), at);
		one_name(&tally, name);
	}
	record_tally(&tally);
	if (tally.map)
		fclose(tally.map);
	return EXIT_DONE;
}
