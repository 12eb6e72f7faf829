// Names of error codes.
#include "ptdecode/error.h"

namespace ptd {

std::string_view name_of(ErrorCode code) {
#define PTD_NAME(name)  \
  case ErrorCode::name: \
    return #name
  switch (code) {
    PTD_NAME(invalid_argument);
    PTD_NAME(bad_option);
    PTD_NAME(contradictory_options);
    PTD_NAME(bad_time_window);
    PTD_NAME(no_such_stream);
    PTD_NAME(no_such_thread);
    PTD_NAME(no_such_function);
    PTD_NAME(bad_image_piece);
    PTD_NAME(bad_output);
    PTD_NAME(wrong_recording);
    PTD_NAME(not_recorded);
    PTD_NAME(already_exists);
    PTD_NAME(no_such_session);
    PTD_NAME(unsupported);
    PTD_NAME(unsupported_version);
    PTD_NAME(unsupported_byte_order);
    PTD_NAME(unsupported_compression);
    PTD_NAME(unsupported_trace);
    PTD_NAME(too_large);
    PTD_NAME(no_hardware);
    PTD_NAME(missing_program);
    PTD_NAME(open_failed);
    PTD_NAME(not_found);
    PTD_NAME(permission_denied);
    PTD_NAME(is_directory);
    PTD_NAME(not_regular_file);
    PTD_NAME(read_failed);
    PTD_NAME(write_failed);
    PTD_NAME(no_space);
    PTD_NAME(busy);
    PTD_NAME(untrusted_file);
    PTD_NAME(start_failed);
    PTD_NAME(outside_folder);
    PTD_NAME(bad_format);
    PTD_NAME(unknown_format);
    PTD_NAME(bad_magic);
    PTD_NAME(bad_version);
    PTD_NAME(bad_header);
    PTD_NAME(contradictory_record);
    PTD_NAME(bad_checksum);
    PTD_NAME(bad_compression);
    PTD_NAME(missing_part);
    PTD_NAME(no_trace);
    PTD_NAME(changed);
    PTD_NAME(truncated);
    PTD_NAME(empty_file);
    PTD_NAME(truncated_header);
    PTD_NAME(resources);
    PTD_NAME(out_of_memory);
    PTD_NAME(too_many_files);
    PTD_NAME(cancelled);
  }
#undef PTD_NAME
  return "";
}

}  // namespace ptd
