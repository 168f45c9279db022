//! What is taught about each protocol: an introduction, runs cut into chapters, and what it cannot promise.
//!
//! The commands are those of scenarios; what comes of them is told by the run itself. Nothing here names a time, and what a chapter takes
//! for granted (who leads) it expects, so that a test finds a chapter that has become untrue.

use incumbent_protocol::machine::Kind;

/// A lesson about one protocol.
pub(crate) struct Lesson {
    pub(crate) title: &'static str,
    pub(crate) introduction: &'static [&'static str],
    pub(crate) runs: &'static [Run],
    pub(crate) limits: &'static [&'static str],
}

/// Chapters in one world.
pub(crate) struct Run {
    /// The cluster line of a scenario.
    pub(crate) cluster: &'static str,
    pub(crate) chapters: &'static [Chapter],
}

/// A piece of a run.
pub(crate) struct Chapter {
    pub(crate) heading: &'static str,
    pub(crate) text: &'static str,
    /// The commands of a scenario.
    pub(crate) commands: &'static str,
    /// Whether its messages are what the theory counts.
    pub(crate) counted: bool,
}

/// The lesson about `kind`.
pub(crate) fn lesson(kind: Kind) -> &'static Lesson {
    match kind {
        Kind::Bully => &BULLY,
        Kind::Ring => &RING,
        Kind::ChangRoberts => &CHANG_ROBERTS,
        Kind::Raft => &RAFT,
    }
}

const fn chapter(heading: &'static str, text: &'static str, commands: &'static str) -> Chapter {
    Chapter { heading, text, commands, counted: false }
}

const fn counted(heading: &'static str, text: &'static str, commands: &'static str) -> Chapter {
    Chapter { heading, text, commands, counted: true }
}

const STEADY: &str =
    "While all is well the leader says so, again and again. That is all there is to see, so here is one heartbeat's worth of it.";

const WHOLE_AGAIN: &str = "The links work again. Both leaders are heard by all, and the later term counts.";

static BULLY: Lesson = Lesson {
    title: "Bully: the greatest id that answers leads (Garcia-Molina 1982)",
    introduction: &[
        "Every node has a number and knows the numbers of all others. The rule is as simple as can be: of those that are there, the greatest \
         leads. Whoever misses the leader asks all greater ids. If one of them answers, that one takes over the question; if none does, the \
         asker itself is the greatest, and says so to all.",
        "What follows really happens: the shipping code runs in a simulated world, the lines are its trace, and time (t=, in seconds) is \
         simulated. First without the quorum guard, so that nothing but the algorithm is seen.",
    ],
    runs: &[
        Run {
            cluster: "cluster bully nodes=4 guard=off seed=8 tenure=300ms",
            chapters: &[
                chapter(
                    "Detection: nobody leads",
                    "Four nodes have just started. Each waits for a leader for a random time; one of them loses patience first.",
                    "show messages on\nrun until contest",
                ),
                chapter("Contest", "Is a greater id there?", "run until leader"),
                chapter("Announcement", "The winner must be known to all.", "run until agreed\nrun 5ms"),
                chapter("Steady state", STEADY, "show messages all\nrun 50ms"),
                counted(
                    "Detection: the leader dies",
                    "The process of node 4 is killed. Nobody is told: all that the others see is that its heartbeats do not come.",
                    "show messages on\nexpect leader 4\ncrash 4\nrun until contest",
                ),
                counted(
                    "Contest, without the greatest",
                    "The same questions; this time the greatest id does not answer.",
                    "run until leader",
                ),
                counted("Announcement", "", "run until agreed\nrun 5ms"),
                chapter(
                    "The greatest comes back",
                    "Node 4 is restarted. It is greater than the leader, and this is what gave the algorithm its name. As Garcia-Molina wrote it, it would \
                     simply announce itself, and for a moment there would be two; here it demands the office, and the leader leaves first.",
                    "restart 4\nrun until leader 4\nrun until agreed",
                ),
                chapter(
                    "A partition, without the quorum guard",
                    "The network breaks: 1, 2 and 3 on one side, the leader alone on the other. All that each side can see is that the other is silent.",
                    "show messages off\nexpect leader 4\npartition 1 2 3 | 4\nrun 800ms\nshow leader",
                ),
                chapter("The network is whole again", WHOLE_AGAIN, "mend all\nrun 1s\nshow leader\nshow office"),
            ],
        },
        Run {
            cluster: "cluster bully nodes=5 guard=on seed=1",
            chapters: &[
                chapter(
                    "With the quorum guard: the winner must be voted in",
                    "The same algorithm, guarded (the default). Five nodes start. Winning the contest is not enough any more: a majority must agree, and \
                     everyone who agrees promises to vote for nobody else for a while.",
                    "show messages on\nrun until agreed",
                ),
                chapter(
                    "A partition, with the guard",
                    "The network breaks again, and the leader is on the smaller side.",
                    "show messages off\nexpect leader 5\npartition 1 2 3 | 4 5\nrun 700ms\nshow nodes\nshow office",
                ),
            ],
        },
    ],
    limits: &[
        "Without the quorum guard: that there is one leader. Every part of a split network elects its own; only their tokens tell them apart.",
        "That silence means death. A slow node or a broken link looks the same; a guard makes such a mistake harmless, it cannot prevent it.",
        "A leader where there is no majority: guarded, the smaller side has none. That is the price.",
        "Calm: a great id that comes and goes takes the office with it each time, unless it waits until it is free (takeover=when-free).",
    ],
};

const RING_INTRODUCTION: &str = "The nodes stand in a logical ring, and each sends only to the next one that answers. A dead successor is asked twice and then skipped; \
                                 every hop is acknowledged for that purpose (the acknowledgements are not shown).";

static RING: Lesson = Lesson {
    title: "Ring: a list of ids goes round, the greatest on it leads (Le Lann 1977)",
    introduction: &[
        RING_INTRODUCTION,
        "Whoever misses the leader sends a list with its own id on it. Everyone adds its id. When the list is back at its beginner it is complete; the \
         greatest id on it has won, and that news goes round once more.",
        "What follows really happens: the shipping code runs in a simulated world, the lines are its trace, and time (t=, in seconds) is \
         simulated. First without the quorum guard, so that nothing but the algorithm is seen.",
    ],
    runs: &[
        Run {
            cluster: "cluster ring nodes=5 guard=off seed=4",
            chapters: &[
                counted(
                    "Detection: nobody leads",
                    "Five nodes have just started. Each waits for a leader for a random time; one of them loses patience first.",
                    "show messages on\nrun until contest",
                ),
                counted(
                    "Contest and announcement",
                    "One lap to collect the ids, one lap to tell the result.",
                    "run until leader\nrun 10ms",
                ),
                chapter("Steady state", STEADY, "show messages all\nrun 50ms"),
                chapter(
                    "Detection: the leader dies",
                    "The process of node 5 is killed. Nobody is told: all that the others see is that its heartbeats do not come.",
                    "show messages on\nexpect leader 5\ncrash 5\nrun until contest",
                ),
                chapter(
                    "Contest, with a gap in the ring",
                    "The lap must find its way round the dead node.",
                    "run until leader\nrun 10ms",
                ),
                chapter(
                    "A partition, without the quorum guard",
                    "The network breaks in two: 1 and 2 on one side, 3 and 4 on the other. Each side closes its own ring.",
                    "show messages off\npartition 1 2 | 3 4\nrun 1s\nshow leader",
                ),
                chapter("The network is whole again", WHOLE_AGAIN, "mend all\nrun 300ms\nshow leader\nshow office"),
            ],
        },
        RING_GUARDED,
    ],
    limits: RING_LIMITS,
};

const RING_GUARDED: Run = Run {
    cluster: "cluster ring nodes=5 guard=on seed=1",
    chapters: &[
        chapter(
            "With the quorum guard: the winner must be voted in",
            "The same algorithm, guarded (the default). Winning the contest is not enough any more: a majority must agree, and everyone who agrees promises \
             to vote for nobody else for a while.",
            "show messages on\nrun until agreed",
        ),
        chapter(
            "A partition, with the guard",
            "The network breaks, and the leader is on the smaller side.",
            "show messages off\nexpect leader 5\npartition 1 2 3 | 4 5\nrun 1s\nshow nodes\nshow office",
        ),
    ],
};

static CHANG_ROBERTS: Lesson = Lesson {
    title: "Chang-Roberts: only the greatest id comes round the ring (Chang and Roberts 1979)",
    introduction: &[
        RING_INTRODUCTION,
        "Whoever misses the leader sends its own id. A node passes on a greater id and puts its own in the place of a smaller one. Only the greatest id ever \
         comes back to its owner, which then knows that it has won. Short messages, and few of them: smaller ids die on the way.",
        "What follows really happens: the shipping code runs in a simulated world, the lines are its trace, and time (t=, in seconds) is \
         simulated. First without the quorum guard, so that nothing but the algorithm is seen.",
    ],
    runs: &[
        Run {
            cluster: "cluster chang-roberts nodes=5 guard=off seed=4",
            chapters: &[
                counted(
                    "Detection: nobody leads",
                    "Five nodes have just started. Each waits for a leader for a random time; one of them loses patience first.",
                    "show messages on\nrun until contest",
                ),
                counted("Contest", "Whose id survives the lap?", "run until leader"),
                counted("Announcement", "The winner tells the ring.", "run 10ms"),
                chapter("Steady state", STEADY, "show messages all\nrun 50ms"),
                chapter(
                    "Detection: the leader dies",
                    "The process of node 5 is killed. Nobody is told: all that the others see is that its heartbeats do not come.",
                    "show messages on\nexpect leader 5\ncrash 5\nrun until contest",
                ),
                chapter(
                    "Contest, with a gap in the ring",
                    "The lap must find its way round the dead node.",
                    "run until leader\nrun 10ms",
                ),
                chapter(
                    "A partition, without the quorum guard",
                    "The network breaks in two: 1 and 2 on one side, 3 and 4 on the other. Each side closes its own ring.",
                    "show messages off\npartition 1 2 | 3 4\nrun 1s\nshow leader",
                ),
                chapter("The network is whole again", WHOLE_AGAIN, "mend all\nrun 300ms\nshow leader\nshow office"),
            ],
        },
        Run { cluster: "cluster chang-roberts nodes=5 guard=on seed=1", chapters: RING_GUARDED.chapters },
    ],
    limits: RING_LIMITS,
};

static RING_LIMITS: &[&str] = &[
    "Without the quorum guard: that there is one leader. Every part of a split network closes its own ring; only the tokens tell the leaders apart.",
    "Speed: a lap takes one hop after the other, and every dead node on the way costs two unanswered questions.",
    "That silence means death. A slow node or a broken link looks the same; a guard makes such a mistake harmless, it cannot prevent it.",
    "A leader where there is no majority: guarded, the smaller side has none. That is the price.",
];

static RAFT: Lesson = Lesson {
    title: "Raft: a majority votes, once a term (Ongaro and Ousterhout 2014)",
    introduction: &[
        "Time is divided into terms, and in each term every node has one vote. Whoever has waited long enough without a leader asks for the votes of a new \
         term; a majority of them makes it the leader. Any two majorities share a node, and that node votes only once: so a term has at most one leader.",
        "What follows really happens: the shipping code runs in a simulated world, the lines are its trace, and time (t=, in seconds) is simulated. It is \
         Raft's election alone; there is no log here, so every node is fit to lead.",
    ],
    runs: &[
        Run {
            cluster: "cluster raft nodes=5 seed=1",
            chapters: &[
                counted(
                    "Detection: nobody leads",
                    "Five nodes have just started. Each waits for a leader for a random time, so that seldom two stand together.",
                    "show messages on\nrun until contest",
                ),
                counted("Contest", "First the question whether, then the vote.", "run until leader"),
                counted("Announcement", "The first heartbeat tells the others.", "run until agreed"),
                chapter("Steady state", STEADY, "show messages all\nrun 52ms"),
                chapter(
                    "Detection: the leader dies",
                    "The leader's process is killed. Nobody is told: all that the others see is that its heartbeats do not come.",
                    "show messages on\nexpect leader 5\ncrash 5\nrun until contest",
                ),
                chapter("Contest and announcement", "Those who are left are still a majority.", "run until agreed"),
                chapter(
                    "A partition, with check-quorum",
                    "Node 5 comes back, then the network breaks in two and the leader is on the smaller side.",
                    "show messages off\nrestart 5\nrun 500ms\nexpect leader 4\npartition 2 4 | 1 3 5\nrun 600ms\nshow nodes\nshow office",
                ),
                chapter(
                    "The network is whole again",
                    "The smaller side comes back, and thanks to the pre-vote it disturbs nobody.",
                    "mend all\nrun 300ms\nshow leader",
                ),
            ],
        },
        Run {
            cluster: "cluster raft nodes=4 prevote=off seed=3",
            chapters: &[chapter(
                "A split vote",
                "Four nodes, two of which stand at the same moment, without pre-vote; two cut links see to it that each gets one vote besides its own. Neither has \
                     three. Both have drawn a new random wait already, and the shorter one decides.",
                "show messages on\ncut 1 3\ncut 2 4\ncampaign 1\ncampaign 4\nrun 3ms\nshow nodes\nmend all\nrun until agreed",
            )],
        },
        Run {
            cluster: "cluster raft nodes=3 guard=off seed=7",
            chapters: &[
                chapter(
                    "A partition, without check-quorum",
                    "Three nodes as the paper's basic algorithm has them: a leader steps down only when it hears of a later term. The leader is cut off.",
                    "run until agreed\nexpect leader 1\ncut 1\nrun 400ms\nshow leader",
                ),
                chapter("The network is whole again", WHOLE_AGAIN, "mend all\nrun 100ms\nshow leader\nshow office"),
            ],
        },
    ],
    limits: &[
        "A leader without a majority: with three nodes one may fail, with five two.",
        "Without check-quorum (guard=off): that the old leader knows. One leader a term, but two nodes can believe at once, in different terms.",
        "That the lease holds if a clock runs wrong: two leaders at once are excluded only while clock rates keep the drift bound. Tokens hold in any case.",
        "That the first try succeeds: votes can split, and only chance breaks the tie.",
    ],
};
