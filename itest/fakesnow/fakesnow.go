// Package fakesnow is a fake ServiceNow instance: tables in memory with ordered indexes, the Table
// and Aggregate APIs, encoded queries, users and ACLs, a settable clock, faults, a journal of what
// was received, and data to fill it. It serves over real sockets (Listen) or in process (Transport,
// which also works inside a testing/synctest bubble).
//
// It shares no protocol code with the engine on purpose: a misreading in a shared helper would hide
// the same bug on both sides.
package fakesnow

import (
	"sync"
	"sync/atomic"
	"time"
)

// Stamp is the layout of date-times in rows and query literals.
const Stamp = "2006-01-02 15:04:05"

// Options configures a new instance. The zero value is usable.
type Options struct {
	// Seed drives generated ids, rows and the probability of faults.
	Seed int64
	// Users maps user names to passwords. Empty: any Basic credentials are accepted as user "admin".
	Users map[string]string
	// Clock is the base clock; SetClock and Advance work on top of it. Default time.Now.
	Clock func() time.Time
	// Dictionary is the path of a dictionary_sdk_core_*.json file; "" uses the built-in tables only.
	Dictionary string
	// StampWrite maps the instance time of a write to the time stamped on the row, to stamp many
	// writes in one second or late. Nil stamps the time itself.
	StampWrite func(now time.Time) time.Time
	// CacheBytes bounds the cache of encoded blocks (default 256 MiB).
	CacheBytes int64
	// GzipLevel is the level of compressed blocks, 1 to 9 (default 1; 6 makes smaller pages, at four
	// times the cost the first time a block is sent).
	GzipLevel int
	// JournalEntries bounds the journal (default 20,000 entries; older ones are dropped and counted).
	JournalEntries int
	// JournalBody bounds the request body kept per journal entry in bytes (default 16 KiB).
	JournalBody int
	// Clients maps OAuth client ids to secrets. Empty: any client is accepted.
	Clients map[string]string
}

// Instance is one fake ServiceNow instance. All methods may be called concurrently.
type Instance struct {
	opts   Options
	offset atomic.Int64 // nanoseconds on top of opts.Clock

	mu        sync.RWMutex // guards everything down to the next group
	tables    map[string]*table
	settings  map[string]string
	users     map[string]*user
	displays  map[string]string // table + "/" + sys_id -> display value
	hiddenRow map[string]func(string, map[string]string) bool
	hiddenCol map[aclKey]bool
	denied    map[aclKey]bool
	frozen    map[aclKey]bool
	tokens    map[string]token
	refresh   map[string]string // refresh token -> user
	schemaGen uint64
	leafGen   uint64
	idSeq     uint64
	importSeq int

	hookMu sync.RWMutex
	hook   func(Entry)

	faults  faultSet
	journal journal
	blocks  blockCache
	visited atomic.Int64 // rows and tree nodes looked at by list requests

	srvMu   sync.Mutex
	servers map[*Server]struct{}
}

// New makes an instance. It panics when Options.Dictionary cannot be read: a test or demo that asks
// for a dictionary is meaningless without it. Use CheckDictionary to ask first.
func New(opts Options) *Instance {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.CacheBytes == 0 {
		opts.CacheBytes = 256 << 20
	}
	if opts.GzipLevel < 1 || opts.GzipLevel > 9 {
		opts.GzipLevel = 1
	}
	if opts.JournalEntries <= 0 {
		opts.JournalEntries = 20000
	}
	if opts.JournalBody <= 0 {
		opts.JournalBody = 16 << 10
	}
	in := &Instance{
		opts:      opts,
		tables:    map[string]*table{},
		settings:  map[string]string{},
		users:     map[string]*user{},
		displays:  map[string]string{},
		hiddenRow: map[string]func(string, map[string]string) bool{},
		hiddenCol: map[aclKey]bool{},
		denied:    map[aclKey]bool{},
		frozen:    map[aclKey]bool{},
		tokens:    map[string]token{},
		refresh:   map[string]string{},
		servers:   map[*Server]struct{}{},
	}
	in.faults.init(opts.Seed)
	in.journal.init(opts.JournalEntries, opts.JournalBody)
	in.blocks.init(opts.CacheBytes)
	if err := in.loadSchema(opts.Dictionary); err != nil {
		panic("fakesnow: " + err.Error())
	}
	in.seedUsers()
	return in
}

// Now is the instance's time: the base clock plus the offset of SetClock and Advance.
func (in *Instance) Now() time.Time {
	return in.opts.Clock().Add(time.Duration(in.offset.Load())).UTC()
}

// SetClock makes Now return t; the clock goes on running from there.
func (in *Instance) SetClock(t time.Time) {
	in.offset.Store(int64(t.Sub(in.opts.Clock())))
}

// Advance moves the instance's clock by d, which may be negative.
func (in *Instance) Advance(d time.Duration) { in.offset.Add(int64(d)) }

// Names of the settings that the fake itself knows; system properties of ServiceNow keep theirs.
const (
	// SettingInvalidQuery "true" answers an invalid query with an empty list.
	SettingInvalidQuery = "glide.invalid_query.returns_no_rows"
	// SettingInvalidTerm is what an unknown field or unparseable term does: "drop" (default),
	// "empty" (no rows) or "forbid" (403).
	SettingInvalidTerm = "snow.fake.invalid_term"
	// SettingLiteralZone is how literal times in queries are read: "utc" (default) or "user".
	SettingLiteralZone = "snow.fake.literal.zone"
	// SettingCollation orders sys_ids: "ci" (default, case-insensitive) or "binary".
	SettingCollation = "snow.fake.collation"
	// SettingCaretEscape "true" reads ^^ in a query as a caret inside a value.
	SettingCaretEscape = "snow.fake.caret.escape"
	// SettingURIMax is the longest request URI in bytes (default 16384); longer ones get 414 HTML.
	SettingURIMax = "snow.fake.uri.max"
	// SettingLinkMax is the longest Link header; beyond it 400 "Pagination not supported" (0 = off).
	SettingLinkMax = "snow.fake.link.max"
	// SettingNoAuditDelete lists tables (comma separated) whose deletes leave no sys_audit_delete row.
	SettingNoAuditDelete = "snow.fake.no_audit_delete"
	// SettingTruncate "true" cuts written values at the column's max_length silently.
	SettingTruncate = "snow.fake.truncate"
	// SettingUnordered is the order of a list without ORDERBY: "id" (default) or "shuffle" (another
	// order on each request).
	SettingUnordered = "snow.fake.unordered"
	// SettingKeepGivenID "false" gives every created row an id of the instance's own.
	SettingKeepGivenID = "snow.fake.keep_given_id"
	// SettingTokenSeconds is the lifetime of OAuth access tokens (default 1800).
	SettingTokenSeconds = "snow.fake.oauth.token.seconds"
	// SettingCookies "off" sends no session cookies.
	SettingCookies = "snow.fake.cookies"
	// SettingGzip "off" never compresses answers.
	SettingGzip = "snow.fake.gzip"
)

// SetSetting sets a system property or one of the fake's own switches (the Setting constants). It
// also appears as a row of sys_properties unless its name begins with "snow.fake.".
func (in *Instance) SetSetting(name, value string) {
	in.mu.Lock()
	old := in.settings[name]
	in.settings[name] = value
	if name == SettingCollation && old != value {
		in.recollate()
	}
	in.mu.Unlock()
	if len(name) > 10 && name[:10] == "snow.fake." {
		return
	}
	for _, r := range in.Rows("sys_properties", func(r map[string]string) bool { return r["name"] == name }) {
		in.Update("sys_properties", r["sys_id"], map[string]string{"value": value})
		return
	}
	in.Insert("sys_properties", map[string]string{"name": name, "value": value})
}

// Setting returns the value set for a name, or "".
func (in *Instance) Setting(name string) string {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return in.settings[name]
}

// OnRequest sets a function called with each request after its answer is decided and before it is
// written. It may call the instance's methods. Nil removes it.
func (in *Instance) OnRequest(hook func(Entry)) {
	in.hookMu.Lock()
	in.hook = hook
	in.hookMu.Unlock()
}
