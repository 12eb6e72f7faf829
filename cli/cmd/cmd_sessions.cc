// `ptdecode sessions`, `snapshot`, `stop`: recordings that go on by themselves.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>

#include "capture/live/session/session.h"
#include "cli/cmd/commands.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/report/stash_words.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"

namespace ptd::cli {

namespace {

struct SessionsWords {
  std::string name, output = "perf.data";
  bool quiet = false;
  StashWords stash;
};

std::string age_text(uint64_t seconds) {
  const auto when = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[32] = "";
  if (localtime_r(&when, &parts) != nullptr) (void)std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

std::string session_text(const live::SessionStatus& session) {
  if (!session.alive && !session.trouble.empty()) return session.name + ": " + session.trouble + "\n";
  if (!session.alive) return fmt::format("{}: does not answer: its keeper process is stopped or is taking a snapshot\n", session.name);
  std::string text =
      fmt::format("{}: {}\n  since {}, keeper {}, {} snapshots, {} records, {} KiB of sideband", session.name, session.what,
                  age_text(session.started_s), session.keeper_pid, session.snapshots, session.records, session.log_used_bytes / 1024);
  if (session.aux_bytes != 0) text += fmt::format(", {} KiB for the trace", session.aux_bytes / 1024);
  text += "\n";
  if (session.target_ended) text += "  the recorded programs have ended; their records are kept\n";
  if (session.lost_records != 0) text += fmt::format("  {} lost\n", counted(session.lost_records, "record was", "records were"));
  if (session.forgotten != 0)
    text += fmt::format("  {} dropped: the session's log was full\n", counted(session.forgotten, "record was", "records were"));
  if (session.trigger_hits != 0)
    text += fmt::format("  its trigger was hit {}; {} written{}\n", counted(session.trigger_hits, "time"),
                        counted(session.triggered, "snapshot was", "snapshots were"),
                        session.trigger_failures == 0 ? "" : fmt::format(", {} failed", session.trigger_failures));
  if (session.takeovers != 0)
    text += fmt::format("  its keeper was killed {}; another one took over\n", counted(session.takeovers, "time"));
  return text;
}

int run_sessions() {
  const Result<std::vector<live::SessionStatus>> sessions = live::list_sessions();
  if (!sessions) return report_error(sessions.error());
  for (const live::SessionStatus& session : *sessions) standard_output().write(session_text(session));
  if (sessions->empty()) say_on_error("ptdecode: no sessions; ptdecode record --detach NAME starts one\n");
  return kExitOk;
}

int run_snapshot(const SessionsWords& words) {
  if (words.output == "-" && is_terminal(1)) {
    return report_error({ErrorCode::bad_output, "snapshot: -o - writes a recording to standard output, which is a terminal", 0});
  }
  const Result<live::SessionStatus> session = live::take_snapshot(words.name, words.output);
  if (!session) return report_error(session.error());
  if (words.output != "-") keep_snapshot(words.output, words.stash, words.quiet);
  if (words.quiet) return kExitOk;
  if (session->trace_stop_ns != 0) {
    say_on_error(fmt::format("ptdecode: the trace has a gap of {:.3f} ms, the time to read it\n",
                             static_cast<double>(session->trace_stop_ns) / 1e6));
  }
  say_on_error(fmt::format("ptdecode: {}: snapshot {} of session '{}'\n", shown(words.output), session->snapshots, shown(words.name)));
  return kExitOk;
}

int run_stop(const SessionsWords& words) {
  const Status status = live::stop_session(words.name);
  return status.ok() ? kExitOk : report_error(status.error());
}

}  // namespace

Command add_sessions(CLI::App& app) {
  CLI::App& command = *app.add_subcommand("sessions", "List this user's detached recordings");
  command.footer(
      "Each session is a file in $XDG_RUNTIME_DIR/ptdecode (else /run/user/UID/ptdecode, /tmp/ptdecode-UID); removing it ends the "
      "session.\n"
      "Examples:\n"
      "  ptdecode sessions                                      lists the detached recordings\n"
      "  ptdecode record --detach web -e intel_pt//u -p 4711    then: ptdecode sessions");
  return [] { return run_sessions(); };
}

Command add_snapshot(CLI::App& app) {
  auto words = std::make_shared<SessionsWords>();
  CLI::App& command = *app.add_subcommand("snapshot", "Write the current content of a detached recording to a file");
  command.add_option("session", words->name, "name of the session")->required();
  command.add_option("-o,--output", words->output,
                     "the recording (default perf.data; - is standard output); a file of this name is kept as NAME.old");
  add_stash_options(command, words->stash);
  command.add_flag("-q,--quiet", words->quiet, "no summary");
  command.footer(
      "The session continues. Tracing pauses while the trace buffer is read; the kernel's other records continue.\n"
      "Examples:\n"
      "  ptdecode snapshot web -o now.data && ptdecode script -i now.data\n"
      "  ptdecode snapshot web -q -o - | gzip > now.gz          to standard output");
  return [words] { return run_snapshot(*words); };
}

Command add_stop(CLI::App& app) {
  auto words = std::make_shared<SessionsWords>();
  CLI::App& command = *app.add_subcommand("stop", "End a detached recording");
  command.add_option("session", words->name, "name of the session")->required();
  command.footer(
      "The recorded programs continue to run. Take a snapshot first: stop discards the recording.\n"
      "Examples:\n"
      "  ptdecode snapshot web -o last.data; ptdecode stop web  keeps the recording\n"
      "  ptdecode stop web");
  return [words] { return run_stop(*words); };
}

}  // namespace ptd::cli
