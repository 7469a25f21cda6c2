/* The protocol by which pushes, promotions and canaries share a push folder; see store.py and publish.py.

   A change of registry.json is made under a lock, and the rollout's files are written after it, under the same lock.
   A process may end after each step; the kernel releases its lock. What a push removes (push.keep) it first records.

   Checked by tests/unit/components/pusher/test_stages_model.py: all interleavings, by spin; and random ones of them
   step by step against the Python code. */

#ifndef CRASHES
#define CRASHES 2  /* processes that end early */
#endif
#ifndef PUSHES
#define PUSHES 2
#endif
#define KEEP 1     /* push.keep; push.stage_on_push is `stable` */
#define NONE 0
#define IS_IN(version, set) (((set) >> (version)) & 1)
#define ALONE(version) (1 << (version))

byte stable, canary;            /* registry.json */
byte removing;                  /* as well: a set of versions, as bits */
byte history[10], changes;      /* the stable versions, in order */
byte existing;                  /* the complete versions in the folder */
byte newest;                    /* the greatest number so far */
byte file_stable, file_canary;  /* what the rollout's files name */
byte locked;                    /* by this process */
byte crashes = CRASHES;

/* No request goes to a version that does not exist, whatever has ended in between. */
inline holds() {
  assert(stable == NONE || IS_IN(stable, existing));
  assert(canary == NONE || IS_IN(canary, existing));
  assert(file_stable == NONE || IS_IN(file_stable, existing));
  assert(file_canary == NONE || IS_IN(file_canary, existing));
  printf("= %d %d %d %d %d %d\n", stable, canary, removing, existing, file_stable, file_canary)
}

inline may_crash() {
  if
  :: skip
  :: d_step {
       crashes > 0 ->
       crashes--;
       if :: locked == _pid -> locked = NONE :: else fi;
       printf("crash %d\n", _pid)
     };
     goto ended
  fi
}

inline become_stable(version) {
  if
  :: stable != version -> stable = version; history[changes] = version; changes++
  :: else
  fi
}

/* The version that a rollback would go back to. */
inline find_previous() {
  previous = NONE;
  at = changes;
  do
  :: at > 0 && previous == NONE ->
     at--;
     if
     :: history[at] != stable && IS_IN(history[at], existing) && !IS_IN(history[at], removing) -> previous = history[at]
     :: else
     fi
  :: else -> break
  od
}

/* Versions older than the KEEP newest, without a stage; and what an earlier push has not finished. */
inline find_removable() {
  removable = existing & removing;
  at = newest; kept = 0;
  do
  :: at > 0 ->
     if
     :: IS_IN(at, existing) && kept < KEEP -> kept++
     :: IS_IN(at, existing) && kept >= KEEP && at != stable && at != canary && at != previous ->
        removable = removable | ALONE(at)
     :: else
     fi;
     at--
  :: else -> break
  od
}

inline write_files() {
  d_step {
    file_stable = stable; file_canary = canary;
    locked = NONE;
    printf("files %d\n", _pid);
    holds()
  }
}

proctype Push() {
  byte number, previous, removable, at, kept;
  d_step {
    newest++; number = newest; existing = existing | ALONE(number);
    printf("add %d %d\n", _pid, number); holds()
  };
  may_crash();
  atomic { locked == NONE -> locked = _pid };
  d_step {
    if
    :: !IS_IN(number, existing) || IS_IN(number, removing) ->
       locked = NONE; number = NONE; printf("refused %d\n", _pid)
    :: else ->
       if :: canary == NONE -> become_stable(number) :: else fi;
       find_previous(); find_removable();
       removing = removable;
       previous = NONE; kept = 0;  /* so that equal states are equal */
       printf("save %d\n", _pid)
    fi;
    holds()
  };
  if :: number == NONE -> goto ended :: else fi;
  may_crash();
  write_files();
  may_crash();
  at = 1;
  do
  :: at <= newest ->
     if
     :: IS_IN(at, removable) ->
        d_step {
          existing = existing & ~ALONE(at);
          printf("remove %d %d\n", _pid, at); holds()
        };
        may_crash()
     :: else
     fi;
     at++
  :: else -> break
  od;
  if :: removable == 0 -> goto ended :: else fi;
  atomic { locked == NONE -> locked = _pid };
  d_step { removing = removing & ~removable; printf("save %d\n", _pid); holds() };
  may_crash();
  write_files();
ended: skip
}

/* Gives a version a stage: it is verified, then the stage is changed. */
proctype Stage(bool as_canary) {
  byte number;
  bool refused;
  select(number : 1 .. 2);
  d_step {
    refused = !IS_IN(number, existing);
    if
    :: as_canary -> printf("canary %d %d %d\n", _pid, number, refused)
    :: else -> printf("promote %d %d %d\n", _pid, number, refused)
    fi
  };
  if :: refused -> goto ended :: else fi;
  may_crash();
  atomic { locked == NONE -> locked = _pid };
  d_step {
#ifdef CARELESS
    refused = !IS_IN(number, existing);
#else
    refused = !IS_IN(number, existing) || IS_IN(number, removing);
#endif
    if
    :: as_canary && (stable == NONE || stable == number) -> refused = true
    :: else
    fi;
    if
    :: refused -> locked = NONE; printf("refused %d\n", _pid)
    :: !refused && as_canary -> canary = number; printf("save %d\n", _pid)
    :: else ->
       if :: canary == number -> canary = NONE :: else fi;
       become_stable(number);
       printf("save %d\n", _pid)
    fi;
    holds()
  };
  if :: refused -> goto ended :: else fi;
  may_crash();
  write_files();
ended: skip
}

init {
  byte begun;
  atomic {
    do
    :: begun < PUSHES -> run Push(); begun++
    :: else -> break
    od;
    run Stage(false); run Stage(true)
  }
}
