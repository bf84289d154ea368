/*
 * Finds the driver's functions by dlopen and dlsym. Does not call cuInit, and knows
 * nothing of what is measured. driver.h lists the functions.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "probe.h"

struct driver driver;

const char *driver_open(void)
{
	driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!driver.library)
		return dlerror();
	/* dlsym answers a data pointer; a copy keeps to the letter of C. */
#define DRIVER_LOAD(field, symbol, parameters)                        \
	{                                                             \
		void *address = dlsym(driver.library, symbol);        \
		memcpy(&driver.field, &address, sizeof address);      \
	}
	DRIVER_FUNCTIONS(DRIVER_LOAD)
#undef DRIVER_LOAD
	if (!driver.cuInit || !driver.cuDeviceGetCount)
		return "libcuda.so.1 exports no cuInit or no cuDeviceGetCount";
	return NULL;
}

const char *driver_result_name(CUresult result)
{
	static char unnamed[32];
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return "CUDA_SUCCESS"; /* without a call: the driver may be locked */
	if (result == CU_MISSING)
		return "function not in this driver";
	if (CU(cuGetErrorName, result, &name) == CUDA_SUCCESS && name)
		return name;
	snprintf(unnamed, sizeof unnamed, "CUresult %d", result);
	return unnamed;
}

int driver_check(CUresult result, const char *call, const char *where)
{
	if (result == CUDA_SUCCESS)
		return 1;
	record_begin("error");
	record_text("call", call);
	record_int("code", result);
	record_text("name", driver_result_name(result));
	record_text("where", where);
	record_end();
	return 0;
}

int driver_attribute(int attribute, CUdevice device)
{
	int value = -1;

	return CU(cuDeviceGetAttribute, &value, attribute, device) == CUDA_SUCCESS ? value : -1;
}
