package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// mostMetrics bounds what is read from an admin port.
const mostMetrics = 4 << 20

// An adminClient asks the admin port of a running proxy.
type adminClient struct {
	at     string // host:port, or a URL
	url    string
	token  secret
	client *http.Client
}

// newAdminClient returns one for host:port, or for a URL. It encrypts if the URL says so,
// or if the port's own certificate is given: then it trusts that one and no other,
// whatever name is in it.
func newAdminClient(at, cert string, token *passwordFlags) (*adminClient, error) {
	shown, err := token.read()
	if err != nil {
		return nil, err
	}
	c := &adminClient{at: at, url: strings.TrimSuffix(at, "/"), token: shown, client: &http.Client{}}
	if !strings.Contains(at, "://") {
		c.url = map[bool]string{true: "https://", false: "http://"}[cert != ""] + c.url
	}
	if cert == "" {
		return c, nil
	}
	own, err := firstCertificate(cert)
	if err != nil {
		return nil, err
	}
	c.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // in favour of what follows
		VerifyConnection: func(s tls.ConnectionState) error {
			if !bytes.Equal(s.PeerCertificates[0].Raw, own) {
				return errOtherCertificate
			}
			return nil
		},
	}}
	return c, nil
}

var errOtherCertificate = errors.New("its certificate is not the one of --admin-tls-cert")

// firstCertificate is the first of a PEM file, in DER.
func firstCertificate(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("--admin-tls-cert: %v", err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return block.Bytes, nil
		}
	}
	return nil, usagef("--admin-tls-cert %s: %v", path, errNoCertificate)
}

func (c *adminClient) get(ctx context.Context, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the admin port: %w", err)
	}
	if token := c.token.reveal(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the admin port at %s: %w", c.at, rootCause(err))
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, mostMetrics))
	if err != nil {
		return 0, nil, fmt.Errorf("ask the admin port at %s: %w", c.at, err)
	}
	return resp.StatusCode, body, nil
}
