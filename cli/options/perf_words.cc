// Commands and options of perf that have another name here: perf(1), perf-script(1), perf-report(1), perf-intel-pt(1).
#include "cli/options/perf_words.h"

namespace ptd::cli {

namespace {

struct Word {
  std::string_view perf, here;
};
constexpr Word kWords[] = {
    {"annotate", "'ptdecode coverage' for lines of source, 'ptdecode script --insn-trace=disasm' for instructions"},
    {"inject", "none needed; jitdump files and build ids are read directly; 'ptdecode bundle' puts everything into one file"},
    {"archive", "'ptdecode bundle -o FILE.ptb'"},
    {"evlist", "'ptdecode info'"},
    {"buildid-list", "'ptdecode info --json'"},
    {"diff", "'ptdecode functions --diff A B', or 'ptdecode script --diff A B' for the first difference"},
    {"trace", "'ptdecode script', whose tree shows system calls"},
    {"list", "none; 'perf list' shows what can be recorded"},
    {"top", "'ptdecode functions' after the recording"},
    {"--xed", "'ptdecode script --insn-trace=disasm' needs no other program"},
    {"--header", "'ptdecode info'"},
    {"--header-only", "'ptdecode info'"},
    {"-I", "'ptdecode info'"},
    {"--show-info", "'ptdecode info'"},
    {"-D", "'ptdecode packets'"},
    {"--dump-raw-trace", "'ptdecode packets'"},
    {"-G", "'ptdecode script' shows calls as a tree, not as chains"},
    {"--hide-call-graph", "'ptdecode script' shows calls as a tree, not as chains"},
    {"-g", "'ptdecode functions', or 'ptdecode flame' for stacks"},
    {"--call-graph", "'ptdecode functions', or 'ptdecode flame' for stacks"},
    {"--children", "the column 'total' of 'ptdecode functions'"},
    {"--sort", "'ptdecode functions --sort'"},
    {"-s", "'ptdecode functions --sort'; instead of Python scripts, use the library"},
    {"--script", "the library; 'ptdecode functions --format json' and 'ptdecode flame --format folded' are for programs"},
    {"-k", "--symfs ROOT; kernel code is read from the recording's copy (perf record --kcore)"},
    {"--vmlinux", "--symfs ROOT; kernel code is read from the recording's copy (perf record --kcore)"},
    {"--kallsyms", "the recording's own copy (perf record --kcore), or --kcore-after PATH"},
    {"--show-switch-events", "'ptdecode script': time off the cpu is in brackets"},
    {"--show-lost-events", "'ptdecode stat' and 'ptdecode check'"},
    {"--show-mmap-events", "'ptdecode image'"},
    {"--show-text-poke-events", "'ptdecode image' and 'ptdecode check'"},
    {"--show-task-events", "'ptdecode info'"},
    {"--graph-function", "'ptdecode script -S NAME'"},
    {"--dsos", "'ptdecode functions', whose lines name the file"},
    {"-f", "none; the owner of a recording is not checked"},
    {"--force", "none; the owner of a recording is not checked"},
    {"-v", "none; problems are always reported"},
    {"--verbose", "none; problems are always reported"},
    {"--stdio", "none; output is always text"},
    {"--reltime", "--time takes '+5ms', counted from the start of the trace"},
    {"-a", "none; all cpus of the recording are read; -C chooses"},
    {"--all-cpus", "none; all cpus of the recording are read; -C chooses"},
    {"--max-blocks", "'ptdecode script -F brstack', whose lines are whole sequences of branches"},
    {"--branch-stack", "'ptdecode script -F brstack'"},
    {"-b", "'ptdecode script -F brstack'"},
    {"--stitch-lbr", "none; the trace has every call; 'ptdecode script' shows them"},
    {"--max-stack", "none; the trace has every call; 'ptdecode script' shows them"},
    {"--per-event-dump", "'ptdecode script --format json', whose lines have a kind"},
    {"--demangle", "none; names are demangled; --full-names does not shorten them"},
    {"--no-demangle", "none; names are demangled; --full-names does not shorten them"},
    {"--demangle-kernel", "none; names are demangled; --full-names does not shorten them"},
    {"--inline", "'ptdecode script -F +srcline', whose lines name inlined functions"},
    {"--no-inline", "'ptdecode script -F -srcline', which leaves lines and inlined functions out"},
    {"--addr2line", "'ptdecode script -F +srcline' needs no other program"},
    {"--source", "'ptdecode script -F +srcline', or 'ptdecode coverage'"},
    {"--show-kernel-path", "'ptdecode script -F +dso'"},
    {"--full-source-path", "'ptdecode script -F +srcline'"},
    {"--guest-code", "none; code of a guest that only the memory of its hypervisor holds is not recorded"},
    {"--switch-on", "--time, with a time from 'ptdecode functions --func NAME --slowest N'"},
    {"--switch-off", "--time, with a time from 'ptdecode functions --func NAME --slowest N'"},
    {"--percent-limit", "'ptdecode functions --limit'"},
    {"--percentage", "'ptdecode functions', whose shares refer to the selected part"},
    {"--dlfilter", "the library; 'ptdecode script --format json' is for programs"},
    {"--dlarg", "the library; 'ptdecode script --format json' is for programs"},
    {"--gen-script", "the library; 'ptdecode script --format json' is for programs"},
    {"--show-bpf-events", "'ptdecode image'"},
    {"--show-namespace-events", "'ptdecode info'"},
    {"--show-cgroup-events", "'ptdecode info'"},
    {"--tui", "none; output is always text"},
    {"--gtk", "none; output is always text"},
    {"--dump-raw", "'ptdecode packets'"},
    {"--deltatime", "'ptdecode script': each call has its duration"},
};

}  // namespace

std::string nearest_of_perf(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  for (const Word& known : kWords) {
    if (known.perf == name) return std::string(known.here);
  }
  return {};
}

}  // namespace ptd::cli
