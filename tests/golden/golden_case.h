// A golden case: one small file with why, code, changes, trace and the expected flow.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::golden {

/// One file of tests/golden/cases. Sections begin with a word at the start of a line, their lines are indented:
///   why TEXT
///   option slack=NS | ret=on|off|unknown | tips=prompt|deferred | cpu=F/M/S | bp=IP | filter=IP..IP | silent=N | candidates=N |
///          erratum=BIT (the case fails without it) | unchanged-when-frozen
///   code IP [from=T] [to=T]            hex bytes, `;` starts a comment
///   user IP [from=T] [to=T] [space=N]  the same in a user address space, by default the first, 1
///   fork T PARENT                      the next address space begins as a copy of PARENT at T
///   switch T SPACE                     the thread of that address space runs from T on; default: that of space 1
///   poke T IP OLD NEW [cpu=N]          hex bytes, `-` for none
///   edit T1..T2 IP OLD NEW             an edit with an uncertain time
///   lost T1..T2                        records were lost
///   copy T1..T2 IP                     a dated copy; hex bytes
///   trace                              one packet per line: psb, psbend, tsc N, mode.exec 64, fup IP, tip IP, tip.pge IP, tip.pgd IP|-,
///                                      tnt !.!, ... mtc N, tma CTC FAST, mode.exec 32 [if], mode.tsx begin|commit|abort, pip CR3,
///                                      vmcs BASE, ptw N [ip], exstop [ip], mwait HINTS EXT, pwre STATE, cfe TYPE [VECTOR [ip]],
///                                      evd TYPE HEX, trig HEX [icnt N] [ip] [mult], ovf, tracestop, raw HEX, and
///                                      seam truncated|partial|collision|missing: trace bytes were lost here, a PSB follows
///   want                               ips, events in [] and gaps in []
///   finding KIND IP                    expected findings, all of them
struct Case {
  std::string name, path, why;
  std::vector<std::byte> trace;
  std::vector<std::string> want;
  std::vector<std::string> findings;
  pt::DecoderOptions options;
  std::map<uint64_t, AuxBreak> seams;  ///< by offset in the trace
  ContextTrack contexts;
  bool frozen_differs = true;
  std::string erratum;  ///< name of the erratum whose workaround the case needs
  std::string error;    ///< not empty: the file is malformed

  struct Setup {
    std::vector<Section> sections;
    std::vector<Edit> edits;
    std::vector<Interval> lost;
    std::vector<DatedCopy> copies;
    std::vector<std::pair<TimeNs, SpaceId>> forks;  ///< times and parents of the spaces after the first, in order
    uint32_t spaces = 1;                            ///< user address spaces
  } setup;
};

[[nodiscard]] Case load_case(const std::string& path);
[[nodiscard]] Timeline build_timeline(const Case& test, bool frozen);
/// Returns the flow in the words of `want`, which must not depend on `batch_blocks`.
[[nodiscard]] std::vector<std::string> decode_case(const Case& test, const Timeline& timeline, size_t batch_blocks);
/// Same without the workaround for `test.erratum`.
[[nodiscard]] std::vector<std::string> decode_without_erratum(const Case& test, const Timeline& timeline);
/// Rewrites the want section of the case's file.
void rewrite_want(const Case& test, const std::vector<std::string>& lines);

}  // namespace ptd::golden
