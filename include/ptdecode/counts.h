// Counts: how often each block, branch and line of code ran.
#pragma once

#include "ptdecode/block_sequences.h"
#include "ptdecode/code_counts.h"
#include "ptdecode/flow_counts.h"
#include "ptdecode/path_counts.h"
