/* The protocol by which runs of a pipeline, resumed runs, gc and whoever lists runs share an output folder and a store
   of ML Metadata; see run_record.py, run_locks.py, ../orchestration and ../inspection/unused_artifacts.py.

   A run holds the lock of its record alone, and the lock of the artifacts together with other runs; gc holds the latter
   alone. A node, and the clean-up after a failed one, is a child process, which the kernel kills some time after its run
   has ended early: its lock shows when. Any process may end after each step; the kernel releases its locks. Both runs have
   the same node, so the second may take its output from the cache. gc keeps the newest run (`store gc --keep 1`).

   Checked by tests/unit/pipeline/core/test_runs_model.py: all interleavings, by spin; and random ones of them step by
   step against the Python code. */

#ifndef CRASHES
#define CRASHES 1  /* processes that end early, besides the children of such a run */
#endif
#ifndef RESUMES
#define RESUMES 1
#endif

#ifndef LISTS
#define LISTS 0
#endif

#define NONE 0
#define RUNNING 1   /* states of an execution */
#define CANCELED 2
#define COMPLETE 3
#define CACHED 4
#define LIVE 1      /* of an artifact */
#define DELETED 2
#define ACTIVE 1    /* of a record */
#define DONE 2
#define FAILED 3
#define DIED 4      /* as it is listed */
#define PARTIAL 1   /* of a folder */
#define WHOLE 2
#define MIXED 3     /* with files of two attempts */

#define SUCCEEDED(run) (execution[run] >= COMPLETE)
#define LISTED(run) (record[run] == ACTIVE && holder[run] == NONE -> DIED : record[run])
#define OTHER(run) (3 - run)

/* By the number of the run, 1 or 2. */
byte record[3];                 /* the state in run.json */
byte holder[3];                 /* the process that holds the lock of the record */
byte node[3];                   /* the process that holds the lock of the node */
byte execution[3], output[3];   /* in ML Metadata, and the artifact that it refers to */
byte artifact[3], folder[3];    /* the artifact that the run's own node makes */
byte newest;                    /* in ML Metadata */
byte users, collector;          /* of the lock of the artifacts: processes that hold it together, or the one alone */
byte crashes = CRASHES;

/* Not a part of the code's state. */
byte wanted[3];                 /* processes that found this artifact in the cache, and have not recorded it yet */
byte child_end[16];             /* by parent: its child has ended, or a clean-up was killed */
bool gone[16];                  /* processes that have ended */
bool is_late[3];                /* a node has begun after the end of its run: its execution may stay open until a resume */

#define ENDED 1
#define KILLED 2

inline holds() {
  assert(output[1] != 1 || folder[1] == WHOLE || folder[1] == NONE);
  assert(output[2] != 2 || folder[2] == WHOLE || folder[2] == NONE);
  printf("= %d %d %d %d %d %d %d %d %d %d\n", LISTED(1), LISTED(2), execution[1], execution[2], output[1], output[2],
    artifact[1], artifact[2], folder[1], folder[2])
}

inline release() {
  if :: uses -> users-- :: else fi;
  holder[id] = NONE;
  gone[_pid] = true
}

inline may_crash() {
  if
  :: skip
  :: d_step { crashes > 0 -> crashes--; printf("crash %d\n", _pid); release() }; goto ended
  fi
}

inline release_child(how) {
  if :: uses -> users-- :: else fi;
  if :: found != NONE -> wanted[found]-- :: else fi;
  if :: node[id] == _pid -> node[id] = NONE :: else fi;
  child_end[parent] = how
}

/* A child may as well be killed because its run has ended. */
inline may_be_killed() {
  if
  :: skip
  :: d_step { crashes > 0 -> crashes--; printf("crash %d\n", _pid); release_child(KILLED) }; goto ended
  :: d_step { gone[parent] -> printf("crash %d\n", _pid); release_child(KILLED) }; goto ended
  fi
}

inline use_artifacts() {
#ifdef GC_WITHOUT_LOCK
  d_step { users++; printf("use %d\n", _pid) }
#else
  atomic { collector == NONE -> users++; printf("use %d\n", _pid) }
#endif
}

inline lock_node() {
#ifdef LATE_NODES
  d_step { node[id] = _pid; printf("lock %d %d\n", _pid, parent) };
#else
  atomic {
    node[id] == NONE -> node[id] = _pid; is_late[id] = is_late[id] || gone[parent];
    printf("lock %d %d\n", _pid, parent)
  }
#endif
}

/* Removes the output of an attempt that was killed, then closes its execution. */
inline clean_up() {
  if
  :: execution[id] == RUNNING ->
#ifdef CANCEL_FIRST
     d_step { execution[id] = CANCELED; printf("cancel %d\n", _pid); holds() };
     may_be_killed();
     d_step { folder[id] = NONE; printf("clear %d\n", _pid); holds() };
     may_be_killed()
#else
     d_step { folder[id] = NONE; printf("clear %d\n", _pid); holds() };
     may_be_killed();
     d_step { execution[id] = CANCELED; printf("cancel %d\n", _pid); holds() };
     may_be_killed()
#endif
  :: else
  fi
}

proctype Node(byte id, parent) {
  byte found;
  bool uses;
  lock_node();
  may_be_killed();
  use_artifacts(); uses = true;
  may_be_killed();
  clean_up();
  if :: SUCCEEDED(id) -> goto complete :: else fi;
  d_step {
    if :: execution[id] == NONE -> newest = id :: else fi;
    execution[id] = RUNNING;
    printf("register %d\n", _pid); holds()
  };
  may_be_killed();
  d_step {
    if
    :: SUCCEEDED(OTHER(id)) && artifact[output[OTHER(id)]] == LIVE && folder[output[OTHER(id)]] == WHOLE ->
       found = output[OTHER(id)]; wanted[found]++
    :: else
    fi;
    printf("look %d\n", _pid)
  };
  may_be_killed();
  if
  :: found != NONE ->
     d_step {
       assert(artifact[found] == LIVE && folder[found] == WHOLE);
       execution[id] = CACHED; output[id] = found;
       printf("cached %d\n", _pid); holds()
     }
  :: else ->
     d_step { folder[id] = (folder[id] == NONE -> PARTIAL : MIXED); printf("write %d\n", _pid); holds() };
     may_be_killed();
     d_step { if :: folder[id] == PARTIAL -> folder[id] = WHOLE :: else fi; printf("written %d\n", _pid); holds() };
     may_be_killed();
     d_step {
       assert(folder[id] == WHOLE);
       execution[id] = COMPLETE; output[id] = id; artifact[id] = LIVE;
       printf("publish %d\n", _pid); holds()
     }
  fi;
complete:
  skip;
  d_step { printf("leave %d\n", _pid); release_child(ENDED) };
ended:
  skip
}

proctype Clean(byte id, parent) {
  byte found;
  bool uses;
  lock_node();
  may_be_killed();
  clean_up();
  d_step { printf("leave %d\n", _pid); release_child(ENDED) };
ended:
  skip
}

proctype Run(byte id; bool resumes) {
  bool uses;
  d_step {
    gone[_pid] = false;
    if
    :: !resumes -> holder[id] = _pid; record[id] = ACTIVE; printf("begin %d %d\n", _pid, id); holds()
    :: resumes && (record[id] == NONE || holder[id] != NONE) -> printf("resume %d %d 1\n", _pid, id); id = NONE
    :: else -> holder[id] = _pid; record[id] = ACTIVE; printf("resume %d %d 0\n", _pid, id); holds()
    fi
  };
  if :: id == NONE -> goto ended :: else fi;
  may_crash();
  use_artifacts(); uses = true;
  may_crash();
  atomic { child_end[_pid] = 0; run Node(id, _pid) };
  may_crash();
  atomic { child_end[_pid] != 0 -> printf("return %d\n", _pid) };
  may_crash();
  if
  :: !SUCCEEDED(id) ->
     atomic { child_end[_pid] = 0; run Clean(id, _pid) };
     atomic { child_end[_pid] != 0 -> printf("return %d\n", _pid) };
     may_crash()
  :: else
  fi;
  d_step {
    record[id] = (SUCCEEDED(id) -> DONE : FAILED);
    assert(execution[id] != RUNNING || child_end[_pid] == KILLED || is_late[id]);
    release();
    printf("end %d\n", _pid); holds()
  };
ended:
  skip
}

/* No run may need what is removed. */
inline is_unused() {
  assert(newest == NONE || output[newest] != number);
  assert(holder[1] == NONE || users == 0 || output[1] != number);
  assert(holder[2] == NONE || users == 0 || output[2] != number);
  assert(wanted[number] == 0)
}

inline may_end() {
  if
  :: skip
  :: d_step { crashes > 0 -> crashes--; printf("crash %d\n", _pid); collector = NONE }; goto ended
  fi
}

proctype Collect() {
  byte number;
  bool refused;
#ifdef LATE_GC
  record[1] > ACTIVE && record[2] > ACTIVE;
#endif
  d_step {
#ifdef GC_WITHOUT_LOCK
    collector = _pid;
#else
    if :: users == 0 -> collector = _pid :: else -> refused = true fi;
#endif
    if
    :: execution[1] != NONE && LISTED(1) == ACTIVE -> refused = true
    :: execution[2] != NONE && LISTED(2) == ACTIVE -> refused = true
    :: else
    fi;
    /* At most one, since the newest run has an output of its own or the other one's. */
    number = (output[1] == 1 && folder[1] != NONE && output[newest] != 1 -> 1 : 2);
    if
    :: refused || number == 2 && (output[2] != 2 || folder[2] == NONE || output[newest] == 2) ->
       number = NONE; collector = NONE
    :: else
    fi;
    printf("collect %d %d\n", _pid, refused)
  };
  if :: number == NONE -> goto ended :: else fi;
  may_end();
  d_step { is_unused(); artifact[number] = DELETED; printf("mark %d\n", _pid); holds() };
  may_end();
  d_step { is_unused(); folder[number] = NONE; collector = NONE; printf("delete %d\n", _pid); holds() };
ended:
  skip
}

/* Lists a run: what is listed as died has not ended by itself. */
proctype List(byte id) {
  byte state;
  state = record[id];
  if
  :: state == ACTIVE ->
     d_step {
#ifndef STALE_LIST
       state = record[id];
#endif
       assert(state != ACTIVE || holder[id] != NONE || record[id] == ACTIVE)
     }
  :: else
  fi
}

init {
  byte begun, id;
  atomic {
    run Run(1, false); run Run(2, false); run Collect();
    if :: LISTS -> run List(1) :: else fi;
    do  /* of the first run, which the second does not wait for */
    :: begun < RESUMES -> run Run(1, true); begun++
    :: else -> break
    od
  };
  /* Whatever has ended early: a resumed run is done. */
  _nr_pr == 1;
  crashes = 0;
  id = 1;
  do
  :: id <= 2 ->
     atomic { run Run(id, true) };
     _nr_pr == 1;
     assert(record[id] == DONE && SUCCEEDED(id));
     id++
  :: else -> break
  od
}
