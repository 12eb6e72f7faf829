// The contents that code had over time, as text.
#pragma once

#include <string>

#include "replay/replay_session.h"

namespace ptd::replay {

/// Lists the mappings and versions of the instruction at an address, which a thread sees at its next instruction, one a line. Those of that
/// time have a '*'.
std::string versions_text(ReplaySession& session, ThreadKey thread, Ip ip);

}  // namespace ptd::replay
