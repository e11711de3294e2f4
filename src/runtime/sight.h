// SPDX-License-Identifier: Apache-2.0
// How an engine sees: pictures are cut into tiles when they are shown, and become rows when a prompt that has them is
// read. A thread of its own runs the bricks on a device of its own and hands the rows over through a ring, so that the
// language model reads one picture while the next is made. Rows that were read are kept, in memory and, with a cache
// folder, on disk. Bricks are loaded when the first picture needs them.
//
//   see --> Pictures (tokens, tiles) --> expect --> [thread: tower --> projector] --> Ring --> rows --> Step::given
//
// Of one thread, as the engine is, but for what the constructor's thread does inside.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "runtime/picture.h"
#include "runtime/picture_cache.h"
#include "runtime/picture_rows.h"
#include "runtime/pictures.h"
#include "runtime/vision_encoder.h"

namespace nanomind {

struct SightOptions {
  VisionOptions encoder;
  std::function<Result<std::unique_ptr<Device>>()> open_device;  // of the bricks; called on the thread
  int64_t step_rows = 0;                                         // most rows that a step of the language model reads
  VisionBricks bricks = VisionBricks::stay;
  PictureLimits kept;         // in memory
  PictureCacheOptions cache;  // on disk
};

// What a step is given of pictures besides its tokens: of Step, those of the same names.
struct PictureInputs {
  std::vector<const float*> given;
  std::vector<int32_t> groups;
  std::vector<RowCoordinates> where;

  void clear() {
    given.clear();
    groups.clear();
    where.clear();
  }
};

class Sight {
 public:
  // Reads the file's header only. Errors: those of build_vision.
  // `reader` is the device of the language model, in whose memory rows are handed over; it outlives the result.
  static Result<std::unique_ptr<Sight>> open(Device& reader, const SightOptions& options);
  ~Sight();
  Sight(const Sight&) = delete;
  Sight& operator=(const Sight&) = delete;

  const VisionModel& model() const { return model_; }
  const Pictures& pictures() const { return pictures_; }

  // Where rows of a picture see each other (VisionModel::whole) a step must have all of a picture. The steps must have
  // room for so many rows then; 0 elsewhere.
  int64_t least_step_rows() const;
  // How many of `tokens`, `most` at most, may be one step; 0 when more room is needed.
  int64_t fit(std::span<const TokenId> tokens, int64_t most) const;
  // Whether a step may begin with tokens[at].
  bool may_begin(std::span<const TokenId> tokens, int64_t at) const;
  // Errors: corrupt, unsupported, invalid_argument of files that are no pictures, or too large.
  Result<const Picture*> see(std::span<const std::byte> file, const PictureDetail& detail = {});

  // A request will read these tokens: pictures of which rows are not here begin to be made, in order, until `cancel`
  // (may be null) is set.
  void expect(std::span<const TokenId> tokens, const std::atomic<bool>* cancel);
  // Appends what a step with `tokens`, which come after those `before`, is given. Errors, which append nothing: those
  // of append_rows, also for a picture of those before where rows stand in the plane.
  Result<void> append_inputs(std::span<const TokenId> before, std::span<const TokenId> tokens,
                             const std::atomic<bool>* cancel, PictureInputs& inputs);
  // Appends the rows of those of `tokens` that stand for some, waiting for them; valid until `done`. Errors: cancelled;
  // those of loading and running bricks; invalid_argument for a picture that is not here any more.
  Result<void> append_rows(std::span<const TokenId> tokens, const std::atomic<bool>* cancel,
                           std::vector<const float*>& rows);
  // The rows given have been read.
  void done();
  // A request with this flag has ended, however it did: nothing more is made for it.
  void end(const std::atomic<bool>* cancel);

  // What the bricks may take, in bytes; 0, as at first: what the system has available then. While nothing is being
  // made.
  void set_budget(uint64_t bytes) { budget_ = bytes; }
  // Makes rows of a picture, whether some are kept or not, and lets them go. While nothing is being made. Errors: those
  // of `see`, and of loading and running bricks.
  Result<PictureMeasurement> measure(std::span<const std::byte> file, const PictureDetail& detail = {});

  struct Statistics {
    int64_t encoded = 0;   // pictures,
    int64_t recalled = 0;  // and those whose rows came from the disk
    double encode_ms = 0;
    RingStatistics ring;
    bool loaded = false;        // bricks are in memory
    uint64_t weight_bytes = 0;  // of them, when they were loaded last
  };
  // The memory that rows are handed over in.
  std::span<const std::byte> slots() const { return slots_->bytes(); }
  // Pictures of which every row can be read may not be counted yet while their thread goes on.
  Statistics statistics() const;

 private:
  struct Job {
    TokenId first = 0;  // of the picture
    std::shared_ptr<const CutPicture> cut;
    const std::atomic<bool>* cancel = nullptr;  // of the request
  };

  Sight(Device& reader, GgufFile file, VisionModel model, const SightOptions& options);
  // Nothing is appended for models to which it does not matter.
  void append_where(std::span<const TokenId> before, std::span<const TokenId> tokens,
                    std::vector<RowCoordinates>& where) const;
  void append_groups(std::span<const TokenId> tokens, std::vector<int32_t>& groups) const;
  void want(const Picture& picture, const std::atomic<bool>* cancel);
  // Null when there is nothing to cut any more.
  std::shared_ptr<const CutPicture> cut_of(const Picture& picture) const;
  // Takes a picture's rows from the disk, if they are there.
  bool recall(const Picture& picture);
  void store_made();
  void start();                            // the thread, for what one request wants
  void join();                             // the thread, which is ready or about to be
  void run(const std::vector<Job>& jobs);  // the thread itself
  Result<void> load();
  void rest();  // nothing is encoded soon
  void unload();
  const float* find(TokenId token) const;
  Result<void> take(const std::atomic<bool>* cancel);  // one slot more
  void let_go(size_t count);                           // of the slots held, the oldest first; their rows are kept

  Device& reader_;
  SightOptions options_;
  GgufFile file_;
  VisionModel model_;
  Pictures pictures_;
  uint64_t budget_ = 0;
  Sha256Digest encoder_id_;  // of all that rows depend on besides tiles
  std::optional<PictureCache> cache_;
  std::deque<Job> wanted_;                     // not begun
  std::vector<TokenId> making_;                // first tokens of the thread's pictures,
  std::vector<TokenId> made_;                  // and of those made before, which are not on the disk
  const std::atomic<bool>* cancel_ = nullptr;  // of the thread's request
  std::unique_ptr<Buffer> slots_;
  std::unique_ptr<RowRing> ring_;
  struct Held {
    RowRing::ReadSlot slot;
    bool used_up = false;  // its last row was given
  };
  std::deque<Held> held_;
  // Of the thread while there is one.
  std::unique_ptr<Device> device_;
  std::unique_ptr<VisionEncoder> encoder_;
  mutable std::mutex counting_;  // statistics_, which the thread and its owner write and read
  Statistics statistics_;
  std::jthread thread_;
};

}  // namespace nanomind
