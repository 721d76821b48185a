// The official Go SDK's own verifier on notices that mangod sent: `client webhooks`; MANGO_NOTICES names their file.
package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/option"
)

type notice struct {
	Raw     string            `json:"raw"`
	Headers map[string]string `json:"headers"`
}

func (n notice) header() http.Header {
	h := http.Header{}
	for name, value := range n.Headers {
		h.Set(name, value)
	}
	return h
}

func webhooks() error {
	var given struct {
		Secret  string   `json:"secret"`
		Notices []notice `json:"notices"`
	}
	text, err := os.ReadFile(os.Getenv("MANGO_NOTICES"))
	if err != nil {
		return err
	}
	if err = json.Unmarshal(text, &given); err != nil {
		return err
	}
	key := option.WithWebhookKey(given.Secret)
	for _, n := range given.Notices {
		event, err := client.Beta.Webhooks.Unwrap([]byte(n.Raw), n.header(), key)
		if err != nil {
			return err
		}
		if event.ID != n.Headers["webhook-id"] || event.CreatedAt.IsZero() || event.Data.ID == "" || event.Data.OrganizationID == "" {
			return must(false, "the event is %s", event.RawJSON())
		}
		other := []byte(strings.Replace(n.Raw, `"event"`, `"Event"`, 1))
		if _, err = client.Beta.Webhooks.Unwrap(other, n.header(), key); err == nil {
			return must(false, "another body was taken")
		}
	}
	return must(len(given.Notices) >= 4, "only %d notices", len(given.Notices))
}
