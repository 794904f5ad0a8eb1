package fakesnow

import (
	"bytes"
	"container/list"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/flate"
)

// Pages are glued from blocks: a block is the encoded rows of one leaf of an index, kept plain for
// clients without gzip and as a byte-aligned run of deflate blocks for those with it. A gzip page is
// header, blocks, the empty final block, and a checksum combined from those of the blocks.

type blockKey struct {
	gen  uint64
	view string
	gzip bool
}

type block struct {
	data []byte
	crc  uint32 // of the plain bytes
	size int    // of the plain bytes
}

// blockCache is a least-recently-used cache bounded in bytes.
type blockCache struct {
	mu    sync.Mutex
	limit int64
	used  int64
	order *list.List
	items map[blockKey]*list.Element
}

type cached struct {
	key blockKey
	blk block
}

func (c *blockCache) init(limit int64) {
	c.limit, c.order, c.items = limit, list.New(), map[blockKey]*list.Element{}
}

func (c *blockCache) get(k blockKey) (block, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.items[k]
	if e == nil {
		return block{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).blk, true
}

func (c *blockCache) put(k blockKey, b block) {
	const overhead = 256
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items[k] != nil || int64(len(b.data)) > c.limit {
		return
	}
	c.items[k] = c.order.PushFront(&cached{k, b})
	c.used += int64(len(b.data)) + overhead
	for c.used > c.limit {
		old := c.order.Remove(c.order.Back()).(*cached)
		delete(c.items, old.key)
		c.used -= int64(len(old.blk.data)) + overhead
	}
}

var (
	pageHead  = []byte(`{"result":[`)
	pageTail  = []byte(`]}`)
	gzipHead  = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}
	gzipFinal = []byte{1, 0, 0, 0xff, 0xff} // an empty stored block, marked last
	comma     = []byte{','}
	// gzipComma is a comma as a stored block.
	gzipComma = []byte{0, 1, 0, 0xfe, 0xff, ','}
	commaCRC  = crc32.ChecksumIEEE(comma)
)

// deflaters are pools of compressors by level.
var deflaters [10]sync.Pool

// deflate compresses to whole bytes without ending the stream.
func deflate(plain []byte, level int) []byte {
	w, ok := deflaters[level].Get().(*flate.Writer)
	if !ok {
		var err error
		if w, err = flate.NewWriter(nil, level); err != nil {
			panic(err) // the level was checked in New
		}
	}
	defer deflaters[level].Put(w)
	var out bytes.Buffer
	out.Grow(len(plain)/4 + 64)
	w.Reset(&out)
	_, _ = w.Write(plain) // a bytes.Buffer takes everything
	_ = w.Flush()
	return out.Bytes()
}

// render encodes a page; parts are written in order.
func (in *Instance) render(pg page, v *view, gz bool) (parts [][]byte) {
	if v.live {
		in.mu.RLock()
		defer in.mu.RUnlock()
		pg.segs = nil
	}
	var out gluer
	out.gzip, out.level = gz, in.opts.GzipLevel
	out.plain(pageHead)
	at := 0
	rows := func(upto int) {
		for ; at < upto; at++ {
			if at > 0 {
				out.buf = append(out.buf, ',')
			}
			out.buf = v.encode(out.buf, pg.rows[at])
			if len(out.buf) > 256<<10 {
				out.flush()
			}
		}
	}
	for _, s := range pg.segs {
		rows(s.from)
		if at > 0 {
			out.comma()
		}
		out.block(in.blockOf(pg.rows[s.from:s.to], s.gen, v, gz))
		at = s.to
	}
	rows(len(pg.rows))
	out.plain(pageTail)
	return out.finish()
}

func (in *Instance) blockOf(rows []*row, gen uint64, v *view, gz bool) block {
	key := blockKey{gen, v.key, gz}
	if b, ok := in.blocks.get(key); ok {
		return b
	}
	plain := make([]byte, 0, len(rows)*1024)
	for i, r := range rows {
		if i > 0 {
			plain = append(plain, ',')
		}
		plain = v.encode(plain, r)
	}
	b := block{data: plain, size: len(plain)}
	if gz {
		b = block{data: deflate(plain, in.opts.GzipLevel), crc: crc32.ChecksumIEEE(plain), size: len(plain)}
	}
	in.blocks.put(key, b)
	return b
}

// Warm fills the cache with the compressed blocks of a whole table, so that a benchmark's first pages
// cost no compression: as seen by a user under a base URL such as Server.URL, with the values of
// sysparm_fields and sysparm_exclude_reference_link. Options.CacheBytes must have room (about 300
// bytes a row of 60 fields). It returns the number of blocks.
func (in *Instance) Warm(base, userName, table, fields string, excludeReferenceLink bool) int {
	in.mu.RLock()
	t, u := in.tables[table], in.users[userName]
	if t == nil || u == nil {
		in.mu.RUnlock()
		return 0
	}
	v := in.newView(t, u, base, fields, "false", excludeReferenceLink)
	in.mu.RUnlock()
	var leaves []*node
	in.withIndex(t, byUpdated, func(ix index) {
		ix.ascend(0, func(leaf *node, at int) bool {
			v.bind(leaf.rows)
			leaves = append(leaves, &node{rows: append([]*row(nil), leaf.rows...), gen: leaf.gen})
			return true
		})
	})
	for _, leaf := range leaves {
		in.blockOf(leaf.rows, leaf.gen, v, true)
		leaf.rows = nil
	}
	return len(leaves)
}

// gluer joins pieces into one body.
type gluer struct {
	gzip  bool
	level int
	buf   []byte // plain bytes not yet in parts
	parts [][]byte
	crc   uint32
	size  int
}

func (g *gluer) plain(b []byte) { g.buf = append(g.buf, b...) }

func (g *gluer) comma() {
	if !g.gzip || len(g.buf) > 0 {
		g.buf = append(g.buf, ',')
		return
	}
	g.add(block{data: gzipComma, crc: commaCRC, size: 1})
}

func (g *gluer) add(b block) {
	if g.gzip && len(g.parts) == 0 {
		g.parts = append(g.parts, gzipHead)
	}
	g.parts = append(g.parts, b.data)
	if g.gzip {
		g.crc = crcCombine(g.crc, b.crc, b.size)
	}
	g.size += b.size
}

func (g *gluer) flush() {
	if len(g.buf) == 0 {
		return
	}
	b := block{data: g.buf, size: len(g.buf)}
	if g.gzip {
		b = block{data: deflate(g.buf, g.level), crc: crc32.ChecksumIEEE(g.buf), size: len(g.buf)}
	}
	g.add(b)
	g.buf = nil
}

func (g *gluer) block(b block) {
	g.flush()
	g.add(b)
}

func (g *gluer) finish() [][]byte {
	g.flush()
	if g.gzip {
		n := uint32(g.size) // RFC 1952: the size modulo 2^32
		tail := append([]byte(nil), gzipFinal...)
		tail = append(tail, byte(g.crc), byte(g.crc>>8), byte(g.crc>>16), byte(g.crc>>24), byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
		g.parts = append(g.parts, tail)
	}
	return g.parts
}

// zip compresses a small body.
func zip(plain []byte) [][]byte {
	g := gluer{gzip: true, level: 1}
	g.plain(plain)
	return g.finish()
}

// crcCombine is the CRC-32 of a followed by b, from their checksums and the length of b: a is
// advanced over b's length by squaring the shift matrix (the method of zlib's crc32_combine).
func crcCombine(a, b uint32, n int) uint32 {
	if n == 0 {
		return a
	}
	var odd, even [32]uint32
	odd[0] = crc32.IEEE
	for i := 1; i < 32; i++ {
		odd[i] = 1 << (i - 1)
	}
	square(&even, &odd) // two bits
	square(&odd, &even) // four bits
	for {
		square(&even, &odd)
		if n&1 != 0 {
			a = times(&even, a)
		}
		if n >>= 1; n == 0 {
			break
		}
		square(&odd, &even)
		if n&1 != 0 {
			a = times(&odd, a)
		}
		if n >>= 1; n == 0 {
			break
		}
	}
	return a ^ b
}

func times(m *[32]uint32, v uint32) (sum uint32) {
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			sum ^= m[i]
		}
	}
	return sum
}

func square(to, m *[32]uint32) {
	for i := range m {
		to[i] = times(m, m[i])
	}
}
