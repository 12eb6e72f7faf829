// Errors of system calls.
#include "image/base/system_error.h"

#include <cstring>

namespace ptd {

ErrorCode code_of_errno(int number, ErrorCode otherwise) {
  switch (number) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::not_found;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::permission_denied;
    case EISDIR:
      return ErrorCode::is_directory;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::no_space;
    case EBUSY:
    case ETXTBSY:
    case EAGAIN:
      return ErrorCode::busy;
    case ENOMEM:
      return ErrorCode::out_of_memory;
    case EMFILE:
    case ENFILE:
      return ErrorCode::too_many_files;
    default:
      return otherwise;
  }
}

Error system_error(const std::string& what, ErrorCode otherwise, int number) {
  return Error{code_of_errno(number, otherwise), what + ": " + std::strerror(number), 0};
}

}  // namespace ptd
