/*
 * A library that Babelfish loads at its start (shared_preload_libraries). It has Babelfish's parser of T-SQL
 * parse the statements in the file that BABELFISH_STATEMENTS names, each ended by a line GO. The parser keeps
 * what it has learned of the grammar, and the process of each connection, which is a copy of the first one,
 * inherits that: parsed for the first time in a process, a statement costs up to a tenth of a second of a CPU.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char pkglib_path[]; /* PostgreSQL's directory of libraries */

static void *find(const char *library, const char *symbol)
{
	char path[4096];
	void *handle;

	snprintf(path, sizeof(path), "%s/%s.so", pkglib_path, library);
	handle = dlopen(path, RTLD_NOW);
	return handle ? dlsym(handle, symbol) : NULL;
}

/* By this PostgreSQL checks for which of its versions a library was made: for that of its own libraries. */
const void *Pg_magic_func(void)
{
	const void *(*magic)(void) = (const void *(*)(void)) find("babelfishpg_tds", "Pg_magic_func");

	return magic ? magic() : NULL;
}

void _PG_init(void)
{
	void (*parse)(const char *const *, int) = (void (*)(const char *const *, int)) find("babelfishpg_tsql", "babelfish_warm_parser");
	const char *path = getenv("BABELFISH_STATEMENTS");
	FILE *file = path ? fopen(path, "r") : NULL;
	char line[8192], text[65536] = "";

	if (!parse || !file)
		fprintf(stderr, "babelfish-parser: no statements are parsed: %s\n", parse ? "BABELFISH_STATEMENTS names no file" : "this Babelfish has no babelfish_warm_parser");
	else
		while (fgets(line, sizeof(line), file))
			if (strcmp(line, "GO\n") == 0)
			{
				const char *const texts[] = {text};

				parse(texts, 1);
				text[0] = '\0';
			}
			else
				strncat(text, line, sizeof(text) - strlen(text) - 1);
	if (file)
		fclose(file);
}
