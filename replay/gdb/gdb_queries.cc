// GdbServer: see gdb_server.h. This file: queries, settings, transfers of documents.
#include <algorithm>

#include "replay/branch_trace.h"
#include "replay/gdb/gdb_server.h"
#include "replay/text.h"

namespace ptd::replay {

namespace {

constexpr uint64_t kBytesPerBranch = 24;  // of the hardware's buffer, in which GDB gives the size
constexpr uint64_t kMostBranchBytes = uint64_t{8} << 20;

}  // namespace

std::string GdbServer::query(std::string_view packet) {
  if (take(packet, "Supported")) return supported(packet);
  if (packet == "C") return session_.current() == kNoThread ? "" : "QC" + hex(static_cast<uint64_t>(session_.current())).substr(2);
  if (packet == "fThreadInfo") return threads(true);
  if (packet == "sThreadInfo") return threads(false);
  if (take(packet, "ThreadExtraInfo,")) return thread_info(packet);
  if (packet.starts_with("Attached")) return "1";
  if (packet == "Symbol::") return "OK";
  if (take(packet, "Rcmd,")) return monitor(packet);
  if (take(packet, "Xfer:")) return transfer(packet);
  return "";
}

std::string GdbServer::set(std::string_view packet) {
  if (packet == "NonStop:0") return "OK";
  if (packet.starts_with("NonStop:")) return kError;
  if (take(packet, "btrace")) return branch_trace_setting(packet);
  return "";
}

std::string GdbServer::supported(std::string_view features) {
  tells_breakpoints_ = features.find("swbreak+") != std::string_view::npos;
  follows_programs_ = one_process_ && features.find("exec-events+") != std::string_view::npos;
  return "PacketSize=" + hex(2 * kMostMemoryBytes).substr(2) + "" + (follows_programs_ ? ";exec-events+" : "") +
         ";QStartNoAckMode+;ReverseStep+;ReverseContinue+;swbreak+;hwbreak+;vContSupported+;qXfer:features:read+;qXfer:exec-file:read+;"
         "qXfer:auxv:read+;qXfer:libraries-svr4:read+;Qbtrace:bts+;Qbtrace:off+;Qbtrace-conf:bts:size+;qXfer:btrace:read+;"
         "qXfer:btrace-conf:read+";
}

std::string GdbServer::branch_trace_setting(std::string_view text) {
  if (take(text, "-conf:bts:size=")) {
    if (const auto size = (void(take(text, "0x")), take_hex(text)); size && text.empty()) {
      branch_bytes_ = *size == 0 ? uint64_t{64} << 10 : std::min(*size, kMostBranchBytes);
      return "OK";
    }
    return kError;
  }
  const ThreadKey thread = chosen(general_);  // GDB asks for each thread
  if (text == ":bts") {
    // GDB forgets the traces of an earlier program without a packet, so a second request is no error.
    traced_.insert(thread);
    return "OK";
  }
  if (text == ":off") return traced_.erase(thread) != 0 ? "OK" : "E.Branch trace is off";
  return text == ":pt" ? "E.The branch trace has the form bts only" : "";
}

std::string GdbServer::monitor(std::string_view text) {
  const auto command = from_hex(text);
  if (!command) return kError;
  // `select COMMAND`: GDB selects the thread that executes after a move, at its next step. For scripts, which then step.
  std::string_view words = *command;
  arrives_ = take(words, "select ");
  const ThreadKey thread = selected();
  std::string printed = monitor_.execute(words, thread);
  if (monitor_.moved()) held_.reset();
  if (monitor_.moved() && !arrives_ && session_.current() != thread) {
    printed += "GDB still has thread " + std::to_string(thread) + " selected: select the other with 'thread', or move with 'replay-" +
               std::string(words.substr(0, words.find(' '))) + "' of the script that 'monitor symbols' writes\n";
  }
  constexpr size_t kOnce = 4096;
  for (size_t at = 0; at < printed.size(); at += kOnce) send("O" + to_hex(std::string_view(printed).substr(at, kOnce)));
  if (monitor_.moved()) warn_of_program();
  return "OK";
}

// OBJECT:read:ANNEX:OFFSET,LENGTH
std::string GdbServer::transfer(std::string_view request) {
  const size_t object_end = request.find(':');
  if (object_end == std::string_view::npos) return "";
  const std::string_view object = request.substr(0, object_end);
  std::string_view rest = request.substr(object_end + 1);
  if (!take(rest, "read:")) return "";
  const size_t annex_end = rest.rfind(':');
  if (annex_end == std::string_view::npos) return kError;
  const std::string_view annex = rest.substr(0, annex_end);
  rest.remove_prefix(annex_end + 1);
  const auto offset = take_hex(rest);
  if (!offset || !take(rest, ",")) return kError;
  const auto length = take_hex(rest);
  if (!length || !rest.empty()) return kError;
  const std::string name(request.substr(0, object_end + 6 + annex_end));
  if (*offset == 0 || document_name_ != name) {
    auto made = document(object, annex);
    if (!made) return "E.not available";
    document_name_ = name;
    document_ = std::move(*made);
  }
  if (*offset >= document_.size()) return "l";
  const size_t size = std::min<uint64_t>({*length, kMostTransferBytes, document_.size() - *offset});
  const bool last = *offset + size == document_.size();
  return (last ? "l" : "m") + document_.substr(*offset, size);
}

std::optional<std::string> GdbServer::document(std::string_view object, std::string_view annex) {
  const ThreadKey thread = chosen(general_);
  if (object == "features" && annex == "target.xml") return target_.xml();
  if (object == "exec-file") {
    std::string path = session_.image_of(thread).program();
    if (const auto place = session_.place_of(thread)) program_space_ = place->space;
    program_ = path;
    return path.empty() ? std::nullopt : std::optional(std::move(path));
  }
  if (object == "auxv") {
    std::string vector = session_.image_of(thread).auxiliary_vector();
    return vector.empty() ? std::nullopt : std::optional(std::move(vector));
  }
  if (object == "libraries-svr4") return session_.image_of(thread).library_list();
  if (object == "btrace-conf") {
    if (!traced_.contains(thread)) return std::nullopt;
    return "<!DOCTYPE btrace-conf SYSTEM \"btrace-conf.dtd\">\n<btrace-conf version=\"1.0\">\n<bts size=\"" + hex(branch_bytes_) +
           "\"/>\n</btrace-conf>\n";
  }
  if (object == "btrace") {
    // `delta` is refused: GDB then reads the whole trace, which also holds after a move backward.
    if (!traced_.contains(thread) || (annex != "all" && annex != "new")) return std::nullopt;
    return btrace_document(
        branch_trace(session_.cursor(), thread, std::max<uint64_t>(branch_bytes_ / kBytesPerBranch, 2), session_.memory()));
  }
  return std::nullopt;
}

}  // namespace ptd::replay
