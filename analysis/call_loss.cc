// CallLoss: its sentences for people.
#include "ptdecode/call_tree.h"

namespace ptd {

const char* sentence(CallLoss loss) {
  switch (loss) {
    case CallLoss::none:
      return "nothing was lost";
    case CallLoss::gap:
      return "the flow was lost";
    case CallLoss::strange_return:
      return "a return did not match any open call";
    case CallLoss::strange_resume:
      return "tracing resumed at another place than where it stopped";
    case CallLoss::new_program:
      return "the process executed another program";
  }
  return "";
}

}  // namespace ptd
