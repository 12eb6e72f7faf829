// Calls: functions, the tree of calls per thread, and where the time went.
#pragma once

#include "ptdecode/call_tree.h"
#include "ptdecode/call_walk.h"
#include "ptdecode/function_profile.h"
#include "ptdecode/function_table.h"
