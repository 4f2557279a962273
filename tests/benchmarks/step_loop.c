/* Steps through queries of a SQLite file and touches every cell: the least that reading them can cost.
   usage: step_loop FILE QUERY...   prints the seconds taken and the cells seen */
#include <sqlite3.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv) {
    char uri[8192];
    sqlite3 *db;
    struct timespec from, to;
    long long cells = 0, sum = 0;
    clock_gettime(CLOCK_MONOTONIC, &from);
    snprintf(uri, sizeof uri, "file:%s?mode=ro&immutable=1", argv[1]);
    if (sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) != SQLITE_OK) return 1;
    for (int query = 2; query < argc; query++) {
        sqlite3_stmt *statement;
        if (sqlite3_prepare_v2(db, argv[query], -1, &statement, NULL) != SQLITE_OK) {
            fprintf(stderr, "%s\n", sqlite3_errmsg(db));
            return 1;
        }
        int columns = sqlite3_column_count(statement);
        while (sqlite3_step(statement) == SQLITE_ROW) {
            for (int column = 0; column < columns; column++) {
                switch (sqlite3_column_type(statement, column)) {
                    case SQLITE_NULL: break;
                    case SQLITE_INTEGER: sum += sqlite3_column_int64(statement, column); break;
                    default: sum += sqlite3_column_bytes(statement, column);
                }
            }
            cells += columns;
        }
        sqlite3_finalize(statement);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.3f s, %lld cells, checksum %lld\n", (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) * 1e-9, cells, sum);
    return 0;
}
