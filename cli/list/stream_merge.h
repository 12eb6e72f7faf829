// Runs one producer of text per stream, each on its own thread, and writes their pieces in order of time.
//
//   stream 0: decode -> format -> [chunk][chunk] --+
//   stream 1: decode -> format -> [chunk] ---------+--> k-way merge by time -> Output
//
// Memory is bounded: all streams together hold about kHeldTextBytes of text; a stream starts only when the merge reaches its first moment.
#pragma once

#include <functional>
#include <vector>

#include "cli/text/output.h"
#include "ptdecode/types.h"

namespace ptd::cli {

/// Text of one stream, cut where its time moves. Times never go back within a stream.
struct Chunk {
  struct Piece {
    TimeNs time;
    size_t end = 0;  ///< offset in `text` after the piece
  };
  TextBuffer text;
  std::vector<Piece> pieces;

  /// Declares that text from here on belongs to `time`.
  void cut(TimeNs time) {
    if (text.size() != (pieces.empty() ? 0 : pieces.back().end)) pieces.push_back({current, text.size()});
    current = current < time ? time : current;
  }
  /// Closes the last piece.
  void close() { cut(current); }
  TimeNs current{};
};

/// Where a producer puts its chunks. push() blocks while the queue is full; false: the output is closed.
class ChunkSink {
 public:
  virtual ~ChunkSink() = default;
  /// Takes the chunk and gives an emptied one back in its place.
  virtual bool push(Chunk& chunk) = 0;
  [[nodiscard]] virtual bool stopped() const = 0;
  /// At about this size a chunk is to be pushed: the more streams, the smaller.
  [[nodiscard]] virtual size_t chunk_bytes() const = 0;
};

struct StreamTask {
  TimeNs earliest;                           ///< nothing of the stream is before this
  std::function<void(ChunkSink& sink)> run;  ///< on its own thread; returns when done or stopped
};

/// Runs all tasks and writes everything. Returns false if the output was closed early.
bool merge_streams(std::vector<StreamTask> tasks, Output& output);

}  // namespace ptd::cli
