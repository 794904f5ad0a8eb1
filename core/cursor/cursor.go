package cursor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"snowmelt/core/failure"
)

// Cursor is the position of the last row published. Timestamps have a
// resolution of one second, so the pair is the position, not the time. An empty
// SysID means before the first row of that second.
type Cursor struct {
	Time  Timestamp
	SysID string
}

// Phase says whether a table is still catching up.
type Phase string

// The phases, as they are spelt in the cursor record.
const (
	Backfill Phase = "backfill"
	Stream   Phase = "stream"
)

// Fingerprint identifies what a cursor belongs to: table, base query and domain
// flag. Term order counts and white space is folded, as in the original
// connector, so that its cursors are found (source.md section 4).
func Fingerprint(table, query string, domain bool) string {
	text := table + "\n" + strings.Join(strings.Fields(query), " ") + "\n" + strconv.FormatBool(domain)
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Durable is what the cursor record of a table holds.
type Durable struct {
	Cursor      Cursor
	Phase       Phase
	Fingerprint string
	// Verified is the time up to which the table is proven complete, None if never.
	Verified Timestamp
	// Late is the HI of the last late scan that ended, None if never.
	Late Timestamp
	// Tail holds for each partition of the table's topic the offset before the first
	// page whose rows are still in the filter's window; nil when unknown.
	Tail map[int32]int64
}

const offsetVersion = "1"

// Offset returns the record's value: strings only, the names of the original
// connector first, ours beside them.
func (d Durable) Offset() map[string]string {
	m := map[string]string{
		"version": offsetVersion, "timestamp": d.Cursor.Time.String(), "sys_id": d.Cursor.SysID,
		"phase": string(d.Phase), "fingerprint": d.Fingerprint,
	}
	if d.Verified != None {
		m["verified"] = d.Verified.String()
	}
	if d.Late != None {
		m["late"] = d.Late.String()
	}
	if d.Tail != nil {
		m["tail"] = encodeTail(d.Tail)
	}
	return m
}

// ParseOffset reads a cursor record's value. A version it does not know, or a
// fingerprint other than the wanted one, is refused (failure.Misconfigured):
// going on from it could skip rows.
func ParseOffset(m map[string]string, fingerprint string) (Durable, error) {
	refuse := func(format string, args ...any) (Durable, error) {
		return Durable{}, &failure.Error{
			Class: failure.Misconfigured, Op: "reading the cursor record", Detail: fmt.Sprintf(format, args...),
			Hint: "look at it with `snowmelt offsets list`",
		}
	}
	if v := m["version"]; v != offsetVersion {
		return refuse("version %q is not known here, only %q", v, offsetVersion)
	}
	if f := m["fingerprint"]; f != fingerprint {
		return refuse("it belongs to fingerprint %q, this table has %q", f, fingerprint)
	}
	d := Durable{Phase: Backfill, Fingerprint: fingerprint, Verified: None, Late: None}
	var err error
	if d.Cursor.Time, err = ParseTimestamp(m["timestamp"]); err != nil {
		return refuse("%v", err)
	}
	d.Cursor.SysID = m["sys_id"]
	if strings.EqualFold(m["phase"], string(Stream)) {
		d.Phase = Stream
	}
	for name, to := range map[string]*Timestamp{"verified": &d.Verified, "late": &d.Late} {
		if s, ok := m[name]; ok {
			if *to, err = ParseTimestamp(s); err != nil {
				return refuse("%s: %v", name, err)
			}
		}
	}
	if s, ok := m["tail"]; ok {
		if d.Tail, err = parseTail(s); err != nil {
			return refuse("tail: %v", err)
		}
	}
	return d, nil
}

func encodeTail(t map[int32]int64) string {
	var b strings.Builder
	for i, p := range slices.Sorted(maps.Keys(t)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d:%d", p, t[p])
	}
	return b.String()
}

func parseTail(s string) (map[int32]int64, error) {
	t := map[int32]int64{}
	if s == "" {
		return t, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		p, o, _ := strings.Cut(part, ":")
		partition, err1 := strconv.ParseInt(p, 10, 32)
		offset, err2 := strconv.ParseInt(o, 10, 64)
		if err1 != nil || err2 != nil || partition < 0 || offset < 0 {
			return nil, fmt.Errorf("parsing %.40q: want partition:offset", part)
		}
		t[int32(partition)] = offset
	}
	return t, nil
}

// VersionHeader returns the value of the header snow.version: alias, timestamp,
// sys_id and sys_mod_count. ParseVersion reads it back.
func VersionHeader(alias string, v Version) string {
	return alias + "|" + v.Time.String() + "|" + v.SysID + "|" + v.Mod
}

// ParseVersion reads a snow.version header. Only sys_ids may hold a "|".
func ParseVersion(s string) (alias string, v Version, ok bool) {
	alias, rest, ok1 := strings.Cut(s, "|")
	ts, rest, ok2 := strings.Cut(rest, "|")
	i := strings.LastIndexByte(rest, '|')
	if !ok1 || !ok2 || i < 0 {
		return "", Version{}, false
	}
	t, err := ParseTimestamp(ts)
	return alias, Version{Time: t, SysID: rest[:i], Mod: rest[i+1:]}, err == nil
}
