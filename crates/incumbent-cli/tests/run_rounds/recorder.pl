# The supervised command of the rounds: a tree of two processes, each of which writes down the instant of the boot clock about every
# millisecond for as long as it lives, eight bytes a beat, in a file of its own that says which host, token and process it was.
# Both hold one lock, which the kernel frees when the last of them is gone for good, its memory included: who finds it taken says so.
# Arguments: the folder for the files, the host's name, and how many MiB it touches and holds, because a large process dies slowly.
use strict;
use Fcntl qw(:flock);
use POSIX qw(setsid);
use Time::HiRes qw(clock_gettime usleep);

my ($folder, $host, $mebibytes) = @ARGV;
my $token = $ENV{INCUMBENT_TOKEN};
my $CLOCK_BOOTTIME = 7;

sub now { return pack('Q<', int(clock_gettime($CLOCK_BOOTTIME) * 1e9)) }

sub open_record {
    open(my $record, '>>', "$folder/$host-$token-$$") or die "cannot write to $folder: $!";
    syswrite($record, now());
    return $record;
}

sub live {
    my ($record) = @_;
    while (1) {
        syswrite($record, now());
        usleep(1000);
    }
}

open(my $lock, '>>', "$folder/../lock") or die "cannot write beside $folder: $!";
if (!flock($lock, LOCK_EX | LOCK_NB)) {
    open(my $overlaps, '>>', "$folder/../overlaps") or die "cannot write beside $folder: $!";
    syswrite($overlaps, "token $token on $host began while something of another lived\n");
}
my $record = open_record();
# Forked twice, in a session of its own; with every second token it is deaf too.
if (!fork) {
    setsid();
    exit if fork;
    $SIG{TERM} = 'IGNORE' if $token % 2;
    live(open_record());
}
my $held = 'x' x ($mebibytes << 20);
live($record);
