/* The protocol of checkpoints when all tasks of a cluster are restarted together; see checkpoint.py, training_loop.py,
   early_stopping.py and cluster/supervisor.py.

   A supervisor starts a lead and another synchronous replica. They restore the newest checkpoint that they can read and
   take steps together. After each the lead saves a checkpoint, in files that TensorFlow writes one after the other, and
   evaluates it. Each may be killed after each step; then the supervisor kills the others, waits for their end, and starts
   all again. SIGTERM ends them with a checkpoint, and a resumed run starts them. A read may fail, for one replica alone.

   Checked by tests/unit/components/trainer/test_checkpoints_model.py: all interleavings, by spin; and random ones of them
   step by step against the Python code. */

#ifndef KILLS
#define KILLS 2
#endif
#ifndef STOPS
#define STOPS 1        /* SIGTERM to the supervisor */
#endif
#ifndef FAILED_READS
#define FAILED_READS 1
#endif
#ifdef LATE
#define MAY_KILL (kills > 0 && newest > 0)  /* for simulations, in which most faults would come before a checkpoint */
#define MAY_STOP (newest > 0)
#else
#define MAY_KILL (kills > 0)
#define MAY_STOP true
#endif
#define STEPS 3        /* with a checkpoint after each */
#define KEEP 1         /* checkpoint.keep */
#define MAX_RESTARTS 1

#define NONE 0
#define HALF 1         /* the index is incomplete, or that of other data */
#define WHOLE 2
#define NOTHING 9      /* is restored yet */
#define ALONE(step) (1 << (step))
#define IS_IN(step, set) (((set) >> (step)) & 1)

/* In the folder of the checkpoints. */
byte file[4];          /* by step */
byte listed;           /* a set of steps, as bits, in TensorFlow's file `checkpoint` */
byte evaluated;        /* the step of the last evaluation, in best.json */

/* Of the tasks. */
byte lead_has, other_has;        /* the step that they have restored */
bool failed;                     /* one has ended early */
bool killing;                    /* by the supervisor */
byte alive;                      /* processes */
byte sent;                       /* the step in the lead's last message */
bool complete;                   /* the lead has ended */

/* Of the supervisor. */
byte saved;            /* the newest step in a message */
byte failures;         /* in a row without a new checkpoint */
bool stopping;
bool has_given_up;

byte kills = KILLS, stops = STOPS, failed_reads = FAILED_READS;

/* Not a part of the code's state. */
byte newest;           /* checkpoint that was complete */
byte in_a_row, was_sent;  /* failures, as they were; the newest step in a message that was sent */
byte evaluations;      /* a set of steps */
byte writers;

inline holds() {
  assert(newest == 0 || file[1] == WHOLE || file[2] == WHOLE || file[3] == WHOLE);
  printf("= %d %d %d %d %d %d %d\n", file[1], file[2], file[3], listed, evaluated, saved, failures)
}

inline leave() {
  alive--;
  if :: role == 0 -> writers-- :: else fi
}

inline may_be_killed() {
  if
  :: skip
  :: d_step { MAY_KILL && !killing -> kills--; failed = true; leave(); printf("crash %d\n", role) }; goto ended
  :: d_step { killing -> leave() }; goto ended
  fi
}

/* The newest checkpoint that can be read completely. */
inline restore(has) {
  d_step {
    at = STEPS;
    do
    :: at > 0 && file[at] == WHOLE && is_blind -> is_blind = false; at--
#ifdef TRUST_INDEX
    :: at > 0 && file[at] == HALF -> assert(false)
#endif
    :: at > 0 && file[at] != WHOLE -> at--
    :: else -> break
    od;
    has = at;
    printf("restore %d %d %d\n", role, at, failed_reads)
  }
}

/* One of them reads a damaged block, or has too little memory. */
inline may_fail_to_read() {
  if
  :: skip
  :: d_step { failed_reads > 0 && newest > 0 -> failed_reads--; is_blind = true; printf("blind %d\n", role) }
  fi
}

proctype Other() {
  byte role = 1, at;
  bool is_blind;
  may_be_killed();
  may_fail_to_read();
  restore(other_has);
  may_be_killed();
  lead_has != NOTHING || killing;
  may_be_killed();
#ifndef NO_COMPARISON
  if
  :: d_step { lead_has != other_has && !killing -> failed = true; leave(); printf("differ %d\n", role) }; goto ended
  :: else -> printf("agree %d\n", role)
  fi;
#endif
  /* Its part of the steps are those of the lead. */
  do
  :: d_step { MAY_KILL && !killing -> kills--; failed = true; leave(); printf("crash %d\n", role) }; break
  :: d_step { killing -> leave() }; break
  od;
ended:
  skip
}

inline save() {
  d_step {
    assert(writers == 1);
    if :: file[at] == WHOLE -> file[at] = HALF :: else fi;
    printf("data %d\n", role); holds()
  };
  may_be_killed();
  d_step { file[at] = HALF; printf("half %d\n", role); holds() };
  may_be_killed();
  d_step {
    assert(writers == 1);
    file[at] = WHOLE; newest = at;
    printf("whole %d\n", role); holds()
  };
  may_be_killed();
  d_step { queue = queue | ALONE(at); listed = queue; printf("list %d\n", role); holds() };
  may_be_killed();
  d_step {
    /* The oldest of the list, which has at most two. */
    if
    :: queue != ALONE(at) ->
       file[1] = (at != 1 && IS_IN(1, queue) -> NONE : file[1]);
       file[2] = (at != 2 && IS_IN(2, queue) -> NONE : file[2]);
       file[3] = (at != 3 && IS_IN(3, queue) -> NONE : file[3]);
       queue = ALONE(at)
    :: else
    fi;
    listed = queue;
    printf("sweep %d\n", role); holds()
  };
  may_be_killed();
  d_step {
    sent = at;
    if :: sent > was_sent -> was_sent = sent; in_a_row = 0 :: else fi;
    printf("send %d\n", role)
  };
  may_be_killed()
}

inline evaluate() {
  if
  :: at > evaluated ->
     d_step { evaluated = at; evaluations = evaluations | ALONE(at); printf("evaluate %d\n", role); holds() };
     may_be_killed()
  :: else
  fi
}

proctype Lead() {
  byte role = 0, at, queue;
  bool is_blind, is_last;
  writers++;
  may_be_killed();
  queue = listed;
  may_fail_to_read();
  restore(lead_has);
  may_be_killed();
  other_has != NOTHING || killing;
  may_be_killed();
#ifndef NO_COMPARISON
  if
  :: d_step { lead_has != other_has && !killing -> failed = true; leave(); printf("differ %d\n", role) }; goto ended
  :: else -> printf("agree %d\n", role)
  fi;
#endif
  at = lead_has;
#ifndef NO_CATCH_UP
  if :: at > 0 -> evaluate() :: else fi;
#endif
  do
  :: at < STEPS && !is_last ->
     /* A step of both, which learn in it that one of them has received SIGTERM. */
     if
     :: d_step {
          !failed && !killing ->
          is_last = stopping;
          assert(lead_has == other_has);
#ifdef SAVE_AGAIN
          if :: is_last && at > 0 :: at++ fi;
#else
          at++;
#endif
          printf("step %d %d\n", role, is_last)
        }
     :: d_step { killing -> leave() }; goto ended
     fi;
     may_be_killed();
     save();
     evaluate()
  :: else -> break
  od;
  skip;
  d_step { assert(is_last || at == STEPS); complete = !is_last; failed = is_last; leave(); printf("exit %d\n", role) };
ended:
  skip
}

inline start() {
  atomic {
    lead_has = NOTHING; other_has = NOTHING;
    failed = false; killing = false; stopping = false;
    alive = 2;
    run Lead(); run Other();
    printf("start 2\n")
  }
}

inline read_messages() {
  if :: sent > saved -> saved = sent; failures = 0 :: else fi;
  sent = 0
}

inline kill_all() {
  killing = true;
#ifndef NO_WAIT
  alive == 0;
#endif
#ifdef LOST_MESSAGES
  sent = 0
#else
  d_step { read_messages(); printf("killed 2\n") }
#endif
}

active proctype Supervisor() {
  start();
  do
  :: d_step { sent > 0 -> read_messages(); printf("read 2\n"); holds() }
  :: d_step {
       failed ->
#ifndef LOST_MESSAGES
       read_messages();
#endif
       failures++; in_a_row++;
       has_given_up = failures > MAX_RESTARTS;
       assert(!has_given_up || in_a_row > MAX_RESTARTS);
       printf("failure 2 %d\n", has_given_up); holds()
     };
     kill_all();
     if :: has_given_up -> goto ended :: else fi;
     start()
  :: complete -> printf("done 2\n"); kill_all(); break
  :: stops > 0 && MAY_STOP && !complete ->
     stopping = true; stops--;
     printf("stop 2\n");
     /* It waits for the lead, but only for some seconds. */
     if :: failed || complete :: true fi;
     kill_all();
     if :: complete -> break :: else fi;
     saved = 0; failures = 0; was_sent = 0; in_a_row = 0;
     start()
  od;
  assert(file[STEPS] == WHOLE && evaluations == (1 << STEPS + 1) - 2);
ended:
  skip
}
