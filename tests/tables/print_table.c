/* Prints a table of a recording: a JSON object for each row, without its nulls. Usage: print_table RECORDING TABLE [COLUMN ...] */
#include <inttypes.h>
#include <ptdecode/ptdecode.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int has_bit(const void* bits, int64_t at) { return bits == NULL || (((const uint8_t*)bits)[at / 8] >> (at % 8) & 1) != 0; }

static void print_text(const struct ArrowArray* strings, int64_t at) {
  const int32_t* ends = (const int32_t*)strings->buffers[1];
  const char* text = (const char*)strings->buffers[2];
  at += strings->offset;
  putchar('"');
  for (int32_t i = ends[at]; i < ends[at + 1]; ++i) {
    const unsigned char c = (unsigned char)text[i];
    if (c < 0x20 || c == '"' || c == '\\') {
      printf("\\u%04x", c);
    } else {
      putchar(c);
    }
  }
  putchar('"');
}

/* One value of the formats that the tables of this test have. */
static void print_value(const struct ArrowSchema* schema, const struct ArrowArray* array, int64_t at) {
  const void* values = array->n_buffers > 1 ? array->buffers[1] : NULL;
  if (schema->dictionary != NULL) {
    if (strcmp(schema->format, "i") != 0 || strcmp(schema->dictionary->format, "u") != 0) exit(3);
    print_text(array->dictionary, ((const int32_t*)values)[at]);
    return;
  }
  switch (schema->format[0]) {
    case 'l':
      printf("%" PRId64, ((const int64_t*)values)[at]);
      return;
    case 'L':
      printf("%" PRIu64, ((const uint64_t*)values)[at]);
      return;
    case 'i':
      printf("%" PRId32, ((const int32_t*)values)[at]);
      return;
    case 'I':
      printf("%" PRIu32, ((const uint32_t*)values)[at]);
      return;
    case 'b':
      fputs(has_bit(values, at) ? "true" : "false", stdout);
      return;
    case 'u':
      print_text(array, at - array->offset);
      return;
    default:
      exit(3);
  }
}

static void print_rows(const struct ArrowSchema* schema, const struct ArrowArray* batch) {
  for (int64_t row = 0; row < batch->length; ++row) {
    const char* before = "{";
    for (int64_t i = 0; i < schema->n_children; ++i) {
      const struct ArrowArray* column = batch->children[i];
      const int64_t at = row + column->offset + batch->offset;
      if (column->null_count != 0 && !has_bit(column->buffers[0], at)) continue;
      printf("%s\"%s\": ", before, schema->children[i]->name);
      print_value(schema->children[i], column, at);
      before = ", ";
    }
    puts(before[0] == '{' ? "{}" : "}");
  }
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  ptd_recording* recording = NULL;
  char* message = NULL;
  ptd_code code = ptd_open(argv[1], NULL, &recording, &message);
  struct ArrowArrayStream stream;
  if (code == PTD_OK) {
    ptd_table_options options = PTD_TABLE_OPTIONS_INIT;
    options.columns = argc > 3 ? (const char* const*)(argv + 3) : NULL;
    code = ptd_table(recording, argv[2], &options, &stream, &message);
  }
  ptd_close(recording); /* the stream keeps what it needs */
  if (code != PTD_OK) {
    fprintf(stderr, "print_table: %s (%s)\n", message != NULL ? message : "error", ptd_code_name(code));
    ptd_free(message);
    return 1;
  }
  struct ArrowSchema schema;
  struct ArrowArray batch;
  int status = stream.get_schema(&stream, &schema);
  if (status == 0) {
    while ((status = stream.get_next(&stream, &batch)) == 0 && batch.release != NULL) {
      print_rows(&schema, &batch);
      batch.release(&batch);
    }
    schema.release(&schema);
  }
  if (status != 0) fprintf(stderr, "print_table: %s\n", stream.get_last_error(&stream));
  stream.release(&stream);
  return status != 0;
}
