#!/usr/bin/env bash
# Make FOLDER/bin/python-arm64, which runs a Python 3.11 for arm64 under qemu-aarch64, and FOLDER/root, its Debian 12.
#
#   tools/arm64.sh FOLDER
#
# Called by tools/environment.sh arm64. It needs root, as debootstrap does, but nothing of the Debian runs as root.
set -euo pipefail
FOLDER=$1
PACKAGES=libpython3.11-stdlib,libstdc++6,python3.11-minimal

debs=$(mktemp -d)
trap 'rm -rf "$debs"' EXIT
debootstrap --arch=arm64 --variant=minbase --download-only --include="$PACKAGES" bookworm "$debs" >"$debs/log" 2>&1 || {
  tail -n 5 "$debs/log" >&2
  echo "arm64: Debian's packages could not be downloaded (the last lines are above): check the network, debootstrap and root." >&2
  exit 1
}
mkdir -p "$FOLDER/bin" "$FOLDER/root"
for package in "$debs"/var/cache/apt/archives/{lib,python3,zlib}*.deb; do
  dpkg-deb --extract "$package" "$FOLDER/root"
done

# LiteRT reads which CPU it runs on from these files. The emulator would show it this machine's, with which it crashes.
mkdir -p "$FOLDER/root/proc" "$FOLDER/root/sys/devices/system/cpu"
echo 0 | tee "$FOLDER/root/sys/devices/system/cpu/"{possible,present} >/dev/null
cat >"$FOLDER/root/proc/cpuinfo" <<'END'
processor	: 0
Features	: fp asimd evtstrm crc32 cpuid
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x0
CPU part	: 0xd03
CPU revision	: 4

END
cat >"$FOLDER/bin/python-arm64" <<'END'
#!/bin/sh
here=$(dirname "$(dirname "$(readlink -f "$0")")")
export PYTHONPATH="$here/site-packages"
exec qemu-aarch64 -cpu cortex-a53 -L "$here/root" "$here/root/usr/bin/python3.11" -B "$@"
END
chmod +x "$FOLDER/bin/python-arm64"
