#!/bin/sh
# Records what ext4 does to a disk while Debian's bonnie++ makes, reads and removes files on it: a trace for `ashift
# replay`, in which each of the six phases is a file of its own (`-o create`, … `-o delete-random`). By root, with FUSE
# and loop devices.
#
# usage: bonnie-on-ext4.sh ASHIFT OUT.log.gz [THOUSANDS OF FILES [DRIVE]]
#
# Before each phase, what the one before has left in memory is written (sync; bonnie++ itself does that after all but the
# reading ones), and a read of the disk's sector 1 to 7, past the partition, puts down that a phase begins. Inode tables
# are not zeroed meanwhile (noinit_itable), as on a file system that has been in use. bonnie++'s large file (-s) is left
# out: it is removed before the first of these phases.
set -eu
ashift=$1 out=$2 files=${3:-256} drive=${4:-st2000dm001}
work=$(mktemp -d)
loop=
end() {
    ! mountpoint -q "$work/ext4" || umount "$work/ext4"
    [ -z "$loop" ] || losetup -d "$loop"
    ! mountpoint -q "$work/disk" || umount "$work/disk"
}
trap end EXIT
mkdir "$work/disk" "$work/ext4"
export ASHIFT_STATE="$work/state"
"$ashift" machine create "$work/machine" "ada0=$drive"
"$ashift" -m "$work/machine" parted -s ada0 mklabel gpt mkpart ext4 2048s 100%
"$ashift" machine mount --record "$work/all.log" "$work/machine" "$work/disk"
loop=$(losetup --find --show --direct-io=on "$work/disk/ada0p1")
mkfs.ext4 -q -E lazy_itable_init=1,lazy_journal_init=1,nodiscard "$loop"
mount -o noinit_itable "$loop" "$work/ext4"
sync

n=1
mark() {
    sync
    dd "if=$work/disk/ada0" of=/dev/null bs=512 skip=$n count=1 iflag=direct status=none
    n=$((n + 1))
}
# With -y p bonnie++ prints a number and a colon before each phase, and waits for a line.
mkfifo "$work/go"
bonnie++ -d "$work/ext4" -s 0 -n "$files:1024:1024:16" -u root -r 8192 -z 1 -y p <"$work/go" 2>"$work/said" |
    while read -r line; do
        case $line in
        [0-9]*:) mark && echo >&3 ;;
        *) echo "$line" ;;
        esac
    done 3>"$work/go"
n=7
mark
end
loop=
# The mount ends when its process has closed the machine.
flock "$work/machine/state/lock" true

awk '
BEGIN {
    split("create read delete create-random read-random delete-random", names, " ")
    print "fio version 3 iolog"
}
$2 == "ada0" && $3 == "read" { phase = $4 / 512; next }
$3 ~ /^(read|write|trim|sync)$/ && phase in names { print $1, names[phase], $3, $4, $5 }
' "$work/all.log" | gzip -9n >"$out"
rm -r "$work"
