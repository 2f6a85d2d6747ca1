// What gomemcache does to a server, with answers that memcached gives. Called by clients.sh with
// the server's address.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

var client *memcache.Client

func must(holds bool, what ...any) {
	if !holds {
		panic(fmt.Sprint(what...))
	}
}

// is says what an operation should end with: nil, or one of the library's errors.
func is(err, want error, what ...any) {
	must(errors.Is(err, want) && (want != nil || err == nil), fmt.Sprint(what...), ": ", err)
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func has(key, value string) {
	found, err := client.Get(key)
	is(err, nil, "get ", key)
	must(string(found.Value) == value, key, " is ", string(found.Value))
}

func values() {
	is(client.Ping(), nil, "ping")
	is(client.FlushAll(), nil, "flush")
	_, err := client.Get("a")
	is(err, memcache.ErrCacheMiss, "get of none")
	is(client.Set(&memcache.Item{Key: "a", Value: []byte("1"), Flags: 0xfffffffe}), nil, "set")
	found, err := client.Get("a")
	is(err, nil, "get")
	must(string(found.Value) == "1" && found.Flags == 0xfffffffe, found)
	is(client.Add(item("a", "2")), memcache.ErrNotStored, "add of one")
	is(client.Add(item("b", "2")), nil, "add")
	is(client.Replace(item("none", "3")), memcache.ErrNotStored, "replace of none")
	is(client.Append(item("b", "x")), nil, "append")
	is(client.Prepend(item("b", "y")), nil, "prepend")
	is(client.Append(item("none", "x")), memcache.ErrNotStored, "append to none")
	has("b", "y2x")
	is(client.Set(item("empty", "")), nil, "set of nothing")
	has("empty", "")
	lines := "one\r\nEND\r\nVALUE b 0 1\r\n"
	is(client.Set(item("lines", lines)), nil, "set of lines")
	has("lines", lines)
	is(client.Delete("b"), nil, "delete")
	is(client.Delete("b"), memcache.ErrCacheMiss, "delete of none")
}

func numbers() {
	is(client.Set(item("n", "41")), nil, "set")
	value, err := client.Increment("n", 1)
	must(value == 42 && err == nil, value, err)
	value, err = client.Decrement("n", 100)
	must(value == 0 && err == nil, value, err)
	_, err = client.Increment("none", 1)
	is(err, memcache.ErrCacheMiss, "increment of none")
	is(client.Set(item("word", "x")), nil, "set")
	_, err = client.Increment("word", 1)
	must(err != nil && strings.Contains(err.Error(), "non-numeric"), err)
	has("word", "x")
}

func versions() {
	is(client.Set(item("v", "1")), nil, "set")
	mine, _ := client.Get("v")
	theirs, _ := client.Get("v")
	mine.Value = []byte("2")
	is(client.CompareAndSwap(mine), nil, "cas")
	theirs.Value = []byte("3")
	is(client.CompareAndSwap(theirs), memcache.ErrCASConflict, "cas of an old version")
	has("v", "2")
	is(client.Delete("v"), nil, "delete")
	is(client.CompareAndSwap(mine), memcache.ErrCacheMiss, "cas of none")
}

func many() {
	keys := []string{"none"}
	for number := range 200 {
		key := fmt.Sprint("key", number)
		keys = append(keys, key)
		is(client.Set(item(key, strings.Repeat(key, number))), nil, "set ", key)
	}
	found, err := client.GetMulti(keys)
	must(err == nil && len(found) == 200, len(found), err)
	for number := range 200 {
		key := fmt.Sprint("key", number)
		must(string(found[key].Value) == strings.Repeat(key, number), key)
	}
}

func sizes() {
	large := bytes.Repeat([]byte("v"), 1_000_000)
	is(client.Set(&memcache.Item{Key: "large", Value: large}), nil, "set of a large value")
	has("large", string(large))
	larger := &memcache.Item{Key: "large", Value: append(large, large...)}
	err := client.Set(larger)
	must(err != nil && strings.Contains(err.Error(), "too large"), "too large: ", err)
	_, err = client.Get("large")
	is(err, memcache.ErrCacheMiss, "the value that a refused one replaces")
	is(client.Set(item(strings.Repeat("k", 250), "x")), nil, "set of the longest key")
	has(strings.Repeat("k", 250), "x")
	is(client.Set(item(strings.Repeat("k", 251), "x")), memcache.ErrMalformedKey, "a longer one")
}

func times() {
	brief := &memcache.Item{Key: "brief", Value: []byte("x"), Expiration: 1}
	is(client.Set(brief), nil, "set")
	is(client.Set(&memcache.Item{Key: "kept", Value: []byte("x"), Expiration: 1}), nil, "set")
	is(client.Touch("kept", 1000), nil, "touch")
	is(client.Touch("none", 1), memcache.ErrCacheMiss, "touch of none")
	past := &memcache.Item{Key: "past", Value: []byte("x"), Expiration: -1}
	is(client.Set(past), nil, "set")
	_, err := client.Get("past")
	is(err, memcache.ErrCacheMiss, "get of what is over")
	is(client.Set(&memcache.Item{Key: "touched", Value: []byte("x"), Expiration: 1}), nil, "set")
	touched, err := client.GetAndTouch("touched", 1000)
	must(err == nil && string(touched.Value) == "x", touched, err)
	end := time.Now().Add(20 * time.Second)
	for err = nil; err == nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		_, err = client.Get("brief")
	}
	is(err, memcache.ErrCacheMiss, "get of what is over")
	has("kept", "x")
	has("touched", "x")
}

func together() {
	is(client.Set(item("sum", "0")), nil, "set")
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 250 {
				_, err := client.Increment("sum", 1)
				is(err, nil, "increment")
			}
		}()
	}
	all.Wait()
	has("sum", "2000")
	is(client.DeleteAll(), nil, "delete all")
	_, err := client.Get("sum")
	is(err, memcache.ErrCacheMiss, "get behind delete all")
}

func main() {
	client = memcache.New(os.Args[1])
	client.Timeout = 20 * time.Second
	client.MaxIdleConns = 8
	for _, part := range []func(){values, numbers, versions, many, sizes, times, together} {
		part()
	}
}
