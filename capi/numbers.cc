// The numbers of ptdecode.h are those of the C++ headers: checked when this file is compiled, which makes no code.
#include "ptdecode/error.h"
#include "ptdecode/flow.h"
#include "ptdecode/ptdecode.h"

namespace ptd {

namespace {

template <typename Enumerator>
constexpr bool same(int number, Enumerator enumerator) {
  return number == static_cast<int>(enumerator);
}

static_assert(same(PTD_ERROR_INVALID_ARGUMENT, ErrorCode::invalid_argument));
static_assert(same(PTD_ERROR_BAD_OPTION, ErrorCode::bad_option));
static_assert(same(PTD_ERROR_CONTRADICTORY_OPTIONS, ErrorCode::contradictory_options));
static_assert(same(PTD_ERROR_BAD_TIME_WINDOW, ErrorCode::bad_time_window));
static_assert(same(PTD_ERROR_NO_SUCH_STREAM, ErrorCode::no_such_stream));
static_assert(same(PTD_ERROR_NO_SUCH_THREAD, ErrorCode::no_such_thread));
static_assert(same(PTD_ERROR_NO_SUCH_FUNCTION, ErrorCode::no_such_function));
static_assert(same(PTD_ERROR_BAD_IMAGE_PIECE, ErrorCode::bad_image_piece));
static_assert(same(PTD_ERROR_BAD_OUTPUT, ErrorCode::bad_output));
static_assert(same(PTD_ERROR_WRONG_RECORDING, ErrorCode::wrong_recording));
static_assert(same(PTD_ERROR_NOT_RECORDED, ErrorCode::not_recorded));
static_assert(same(PTD_ERROR_ALREADY_EXISTS, ErrorCode::already_exists));
static_assert(same(PTD_ERROR_NO_SUCH_SESSION, ErrorCode::no_such_session));
static_assert(same(PTD_ERROR_UNSUPPORTED, ErrorCode::unsupported));
static_assert(same(PTD_ERROR_UNSUPPORTED_VERSION, ErrorCode::unsupported_version));
static_assert(same(PTD_ERROR_UNSUPPORTED_BYTE_ORDER, ErrorCode::unsupported_byte_order));
static_assert(same(PTD_ERROR_UNSUPPORTED_COMPRESSION, ErrorCode::unsupported_compression));
static_assert(same(PTD_ERROR_UNSUPPORTED_TRACE, ErrorCode::unsupported_trace));
static_assert(same(PTD_ERROR_TOO_LARGE, ErrorCode::too_large));
static_assert(same(PTD_ERROR_NO_HARDWARE, ErrorCode::no_hardware));
static_assert(same(PTD_ERROR_MISSING_PROGRAM, ErrorCode::missing_program));
static_assert(same(PTD_ERROR_OPEN_FAILED, ErrorCode::open_failed));
static_assert(same(PTD_ERROR_NOT_FOUND, ErrorCode::not_found));
static_assert(same(PTD_ERROR_PERMISSION_DENIED, ErrorCode::permission_denied));
static_assert(same(PTD_ERROR_IS_DIRECTORY, ErrorCode::is_directory));
static_assert(same(PTD_ERROR_NOT_REGULAR_FILE, ErrorCode::not_regular_file));
static_assert(same(PTD_ERROR_READ_FAILED, ErrorCode::read_failed));
static_assert(same(PTD_ERROR_WRITE_FAILED, ErrorCode::write_failed));
static_assert(same(PTD_ERROR_NO_SPACE, ErrorCode::no_space));
static_assert(same(PTD_ERROR_BUSY, ErrorCode::busy));
static_assert(same(PTD_ERROR_UNTRUSTED_FILE, ErrorCode::untrusted_file));
static_assert(same(PTD_ERROR_START_FAILED, ErrorCode::start_failed));
static_assert(same(PTD_ERROR_OUTSIDE_FOLDER, ErrorCode::outside_folder));
static_assert(same(PTD_ERROR_BAD_FORMAT, ErrorCode::bad_format));
static_assert(same(PTD_ERROR_UNKNOWN_FORMAT, ErrorCode::unknown_format));
static_assert(same(PTD_ERROR_BAD_MAGIC, ErrorCode::bad_magic));
static_assert(same(PTD_ERROR_BAD_VERSION, ErrorCode::bad_version));
static_assert(same(PTD_ERROR_BAD_HEADER, ErrorCode::bad_header));
static_assert(same(PTD_ERROR_CONTRADICTORY_RECORD, ErrorCode::contradictory_record));
static_assert(same(PTD_ERROR_BAD_CHECKSUM, ErrorCode::bad_checksum));
static_assert(same(PTD_ERROR_BAD_COMPRESSION, ErrorCode::bad_compression));
static_assert(same(PTD_ERROR_MISSING_PART, ErrorCode::missing_part));
static_assert(same(PTD_ERROR_NO_TRACE, ErrorCode::no_trace));
static_assert(same(PTD_ERROR_CHANGED, ErrorCode::changed));
static_assert(same(PTD_ERROR_TRUNCATED, ErrorCode::truncated));
static_assert(same(PTD_ERROR_EMPTY_FILE, ErrorCode::empty_file));
static_assert(same(PTD_ERROR_TRUNCATED_HEADER, ErrorCode::truncated_header));
static_assert(same(PTD_ERROR_RESOURCES, ErrorCode::resources));
static_assert(same(PTD_ERROR_OUT_OF_MEMORY, ErrorCode::out_of_memory));
static_assert(same(PTD_ERROR_TOO_MANY_FILES, ErrorCode::too_many_files));
static_assert(same(PTD_ERROR_CANCELLED, ErrorCode::cancelled));
static_assert(same(PTD_BLOCK_TAKEN, BlockFlag::taken));
static_assert(same(PTD_BLOCK_ENDS_IN_BRANCH, BlockFlag::ends_in_branch));
static_assert(same(PTD_BLOCK_CHOSEN, BlockFlag::chosen));
static_assert(same(PTD_BLOCK_HEALED, BlockFlag::healed));
static_assert(same(PTD_BLOCK_AMBIGUOUS, BlockFlag::ambiguous));
static_assert(same(PTD_BLOCK_SUSPECT, BlockFlag::suspect));
static_assert(same(PTD_BLOCK_ASSUMED, BlockFlag::assumed));
static_assert(same(PTD_MODE_UNKNOWN, ExecMode::unknown));
static_assert(same(PTD_MODE_16BIT, ExecMode::bits16));
static_assert(same(PTD_MODE_32BIT, ExecMode::bits32));
static_assert(same(PTD_MODE_64BIT, ExecMode::bits64));
static_assert(same(PTD_MODE_A64, ExecMode::a64));
static_assert(same(PTD_MODE_A32, ExecMode::a32));
static_assert(same(PTD_MODE_T32, ExecMode::t32));
static_assert(same(PTD_EVENT_ENABLED, EventKind::enabled));
static_assert(same(PTD_EVENT_DISABLED, EventKind::disabled));
static_assert(same(PTD_EVENT_ASYNC_DISABLED, EventKind::async_disabled));
static_assert(same(PTD_EVENT_ASYNC_BRANCH, EventKind::async_branch));
static_assert(same(PTD_EVENT_EXEC_MODE, EventKind::exec_mode));
static_assert(same(PTD_EVENT_PAGING, EventKind::paging));
static_assert(same(PTD_EVENT_VMCS, EventKind::vmcs));
static_assert(same(PTD_EVENT_TSX_BEGIN, EventKind::tsx_begin));
static_assert(same(PTD_EVENT_TSX_COMMIT, EventKind::tsx_commit));
static_assert(same(PTD_EVENT_TSX_ABORT, EventKind::tsx_abort));
static_assert(same(PTD_EVENT_OVERFLOW, EventKind::overflow));
static_assert(same(PTD_EVENT_TRACE_STOP, EventKind::trace_stop));
static_assert(same(PTD_EVENT_PTWRITE, EventKind::ptwrite));
static_assert(same(PTD_EVENT_EXSTOP, EventKind::exstop));
static_assert(same(PTD_EVENT_MWAIT, EventKind::mwait));
static_assert(same(PTD_EVENT_PWRE, EventKind::pwre));
static_assert(same(PTD_EVENT_PWRX, EventKind::pwrx));
static_assert(same(PTD_EVENT_CBR, EventKind::cbr));
static_assert(same(PTD_EVENT_MNT, EventKind::mnt));
static_assert(same(PTD_EVENT_CFE, EventKind::cfe));
static_assert(same(PTD_EVENT_EVD, EventKind::evd));
static_assert(same(PTD_EVENT_PEBS_BEGIN, EventKind::pebs_begin));
static_assert(same(PTD_EVENT_PEBS_ITEM, EventKind::pebs_item));
static_assert(same(PTD_EVENT_PEBS_END, EventKind::pebs_end));
static_assert(same(PTD_EVENT_TRIG, EventKind::trig));
static_assert(same(PTD_EVENT_CONTEXT, EventKind::context));
static_assert(same(PTD_EVENT_EXCEPTION_RETURN, EventKind::exception_return));
static_assert(same(PTD_EVENT_TRACE_EVENT, EventKind::trace_event));
static_assert(same(PTD_EVENT_INSTRUMENTATION, EventKind::instrumentation));
static_assert(same(PTD_EVENT_SYNC_MARKER, EventKind::sync_marker));
static_assert(same(PTD_EVENT_SKIPPED, EventKind::skipped));
static_assert(same(PTD_EVENT_IGNORED_PACKETS, EventKind::ignored_packets));
static_assert(same(PTD_EVENT_INTERRUPT_FLAG, EventKind::interrupt_flag));
static_assert(same(PTD_EVENT_HAS_FROM, kEventHasFrom));
static_assert(same(PTD_EVENT_HAS_TO, kEventHasTo));
static_assert(same(PTD_EVENT_FLAG_NON_ROOT, kEventNonRoot));
static_assert(same(PTD_EVENT_FLAG_RESUMED, kEventResumed));
static_assert(same(PTD_EVENT_FLAG_STATUS, kEventStatus));
static_assert(same(PTD_EVENT_FLAG_BREAKPOINT, kEventBreakpoint));
static_assert(same(PTD_EVENT_FLAG_SYSCALL, kEventSyscall));
static_assert(same(PTD_GAP_OVERFLOW, GapReason::overflow));
static_assert(same(PTD_GAP_AUX_LOST, GapReason::aux_lost));
static_assert(same(PTD_GAP_BAD_PACKET, GapReason::bad_packet));
static_assert(same(PTD_GAP_NO_IMAGE, GapReason::no_image));
static_assert(same(PTD_GAP_IMAGE_MISMATCH, GapReason::image_mismatch));
static_assert(same(PTD_GAP_BAD_INSN, GapReason::bad_insn));
static_assert(same(PTD_GAP_LIMIT, GapReason::limit));
static_assert(same(PTD_GAP_UNKNOWN_RETURN, GapReason::unknown_return));
static_assert(same(PTD_GAP_UNCOMMITTED, GapReason::uncommitted));
static_assert(PTD_GAP_UNCOMMITTED + 1 == kGapReasons);

}  // namespace

}  // namespace ptd
