package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	corev1 "k8s.io/api/core/v1"
)

// floorCache is the least that a cache of tokens is: an LRU list under a lock, with an expiry.
type floorCache struct {
	mu      sync.Mutex
	entries *simplelru.LRU[[sha256.Size]byte, *floorToken]
}

type floorToken struct {
	expires                  time.Time
	id, secret, sessionToken string
}

func newFloorCache(size int) (*floorCache, error) {
	entries, err := simplelru.NewLRU[[sha256.Size]byte, *floorToken](size, nil)
	return &floorCache{entries: entries}, err
}

func (c *floorCache) add(text []byte, t *floorToken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Add(sha256.Sum256(text), t)
}

func (c *floorCache) get(key [sha256.Size]byte) *floorToken {
	now := time.Now()
	c.mu.Lock()
	t, ok := c.entries.Get(key)
	c.mu.Unlock()
	if !ok || !now.Before(t.expires) {
		return nil
	}
	return t
}

// keyText is what a key is made of, more or less.
const keyText = 256

// floorAdapter is the floor of a hit of an adapter, which knows its key.
func floorAdapter() (op, error) {
	c, err := newFloorCache(1000)
	if err != nil {
		return nil, err
	}
	text, want := make([]byte, keyText), &floorToken{expires: time.Now().Add(time.Hour)}
	c.add(text, want)
	key := sha256.Sum256(text)
	return func(n int) error {
		for range n {
			if c.get(key) != want {
				return fmt.Errorf("the floor missed")
			}
		}
		return nil
	}, nil
}

// floorHit is the floor of a hit. With a tenant, its ServiceAccount is read first, as the libraries do.
func floorHit(w *world, t *tenant) (op, error) {
	c, err := newFloorCache(1000)
	if err != nil {
		return nil, err
	}
	want := &floorToken{expires: time.Now().Add(time.Hour)}
	c.add(make([]byte, keyText), want)
	accounts := sync.Pool{New: func() any { return &corev1.ServiceAccount{} }}
	ctx := context.Background()
	return func(n int) error {
		text := make([]byte, keyText)
		for range n {
			if t != nil {
				sa, _ := accounts.Get().(*corev1.ServiceAccount)
				if err := w.kube.Get(ctx, t.key, sa); err != nil {
					return err
				}
				accounts.Put(sa)
			}
			if c.get(sha256.Sum256(text)) != want {
				return fmt.Errorf("the floor missed")
			}
		}
		return nil
	}, nil
}

// post is the floor of an exchange: the request that both libraries make, and reading the answer.
func post(w *world, t *tenant) error {
	form := url.Values{"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {roleOf(t.key.Namespace)},
		"RoleSessionName": {"bench"}, "WebIdentityToken": {t.jwt}}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "https://sts."+region+".amazonaws.com/", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "<SessionToken>") {
		return fmt.Errorf("STS answered %d", resp.StatusCode)
	}
	return nil
}
