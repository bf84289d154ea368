/*
 * Writes, reads and prints records. The format is flat on purpose: a reader needs no
 * JSON parser to check a line, and a cut line is seen as one. No knowledge of CUDA.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"

static char line[4096]; /* PIPE_BUF: one write is one whole record */
static size_t used;

__attribute__((format(printf, 1, 2))) static void append(const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(line + used, sizeof line - used, format, arguments);
	va_end(arguments);
	/* The last two bytes are kept for "}\n"; what is too long is cut at a field. */
	if (length > 0 && used + (size_t)length < sizeof line - 2)
		used += (size_t)length;
}

/* `text` as the inside of a JSON text. */
static const char *escape(const char *text)
{
	static char escaped[1024];
	size_t length = 0;

	for (; *text && length < sizeof escaped - 8; text++) {
		unsigned char byte = (unsigned char)*text;
		if (byte == '"' || byte == '\\') {
			escaped[length++] = '\\';
			escaped[length++] = (char)byte;
		} else if (byte < 0x20 || byte >= 0x7f) {
			length += (size_t)sprintf(escaped + length, "\\u%04x", byte);
		} else {
			escaped[length++] = (char)byte;
		}
	}
	escaped[length] = '\0';
	return escaped;
}

void record_begin(const char *measure)
{
	used = 0;
	append("{\"measure\":\"%s\"", escape(measure));
}

void record_int(const char *name, long long value)
{
	append(",\"%s\":%lld", name, value);
}

void record_real(const char *name, double value)
{
	if (isfinite(value))
		append(",\"%s\":%.6g", name, value);
	else
		append(",\"%s\":null", name);
}

void record_text(const char *name, const char *value)
{
	append(",\"%s\":\"%s\"", name, escape(value));
}

void record_bool(const char *name, int value)
{
	append(",\"%s\":%s", name, value ? "true" : "false");
}

void record_end(void)
{
	line[used++] = '}';
	line[used++] = '\n';
	/* A reader that has gone is no reason to stop: the write fails, the step goes on. */
	for (size_t sent = 0; sent < used;) {
		ssize_t written = write(options.record_fd, line + sent, used - sent);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return;
		sent += (size_t)written;
	}
}

void record_note(const char *text)
{
	record_begin("note");
	record_text("note", text);
	record_end();
}

/* The end of the JSON text, or NULL. Texts, numbers and the three words only. */
static const char *value_end(const char *at)
{
	if (*at == '"') {
		for (at++; *at && *at != '"'; at++)
			if (*at == '\\' && at[1])
				at++;
		return *at == '"' ? at + 1 : NULL;
	}
	for (const char *word = "true\0false\0null\0"; *word; word += strlen(word) + 1)
		if (strncmp(at, word, strlen(word)) == 0)
			return at + strlen(word);
	size_t digits = strspn(at, "+-.0123456789eE");
	return digits ? at + digits : NULL;
}

int record_parse(const char *at, struct field fields[RECORD_FIELDS])
{
	int count = 0;

	if (strncmp(at, "{\"measure\":\"", 12) != 0)
		return -1;
	do {
		const char *end;
		at++;
		if (count == RECORD_FIELDS || *at != '"' || !(end = value_end(at)) || *end != ':')
			return -1;
		fields[count].key = at + 1;
		fields[count].key_bytes = (int)(end - at - 2);
		at = end + 1;
		if (!(end = value_end(at)))
			return -1;
		fields[count].value = at;
		fields[count++].value_bytes = (int)(end - at);
		at = end;
	} while (*at == ',');
	return *at == '}' && at[1] == '\0' ? count : -1;
}

static int same_shape(const struct field *left, int left_count, const struct field *right,
		      int right_count)
{
	if (left_count != right_count)
		return 0;
	for (int i = 0; i < left_count; i++)
		if (left[i].key_bytes != right[i].key_bytes ||
		    memcmp(left[i].key, right[i].key, (size_t)left[i].key_bytes) != 0)
			return 0;
	return left[0].value_bytes == right[0].value_bytes &&
	       memcmp(left[0].value, right[0].value, (size_t)left[0].value_bytes) == 0;
}

static void print_cell(const char *text, int bytes, int width)
{
	if (bytes >= 2 && *text == '"') {
		text++;
		bytes -= 2;
	}
	printf("  %*s%.*s", width > bytes ? width - bytes : 0, "", bytes, text);
}

/* Prints lines [first, last), which have one shape, as one table. */
static void print_table(char *const *lines, size_t first, size_t last)
{
	struct field fields[RECORD_FIELDS] = {{0}};
	int width[RECORD_FIELDS] = {0};
	int count = 0;

	for (size_t i = first; i < last; i++) {
		count = record_parse(lines[i], fields);
		for (int f = 1; f < count; f++) {
			int bytes = fields[f].value_bytes - (*fields[f].value == '"' ? 2 : 0);
			if (width[f] < bytes)
				width[f] = bytes;
			if (width[f] < fields[f].key_bytes)
				width[f] = fields[f].key_bytes;
		}
	}
	printf("  %.*s\n  ", fields[0].value_bytes - 2, fields[0].value + 1);
	for (int f = 1; f < count; f++)
		print_cell(fields[f].key, fields[f].key_bytes, width[f]);
	printf("\n");
	for (size_t i = first; i < last; i++) {
		count = record_parse(lines[i], fields);
		printf("  ");
		for (int f = 1; f < count; f++)
			print_cell(fields[f].value, fields[f].value_bytes, width[f]);
		printf("\n");
	}
}

void records_print(char *const *lines, size_t count)
{
	struct field one[RECORD_FIELDS], other[RECORD_FIELDS];

	for (size_t first = 0; first < count;) {
		size_t last = first + 1;
		int fields = record_parse(lines[first], one);
		while (last < count &&
		       same_shape(one, fields, other, record_parse(lines[last], other)))
			last++;
		if (strncmp(one[0].value, "\"dump", 5) != 0)
			print_table(lines, first, last);
		first = last;
	}
}
