package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// devFront refuses what a web page makes a browser send: dev believes whoever calls, and a browser on a developer's machine
// calls for every page that it shows.
//
// A page reaches the loopback in two ways. It sends a request across origins: the browser says so, and such a request may change
// nothing. Or its own name is made to resolve to this machine (DNS rebinding), and to the browser it is the same origin: then
// the Host is that name, so only names that nobody else can hold are served: addresses, localhost, and the name that --addr gave.
func devFront(addr string, next http.Handler) http.Handler {
	named, _, _ := net.SplitHostPort(addr)
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !devHost(r.Host, named):
			devRefuse(w,
				"toolledger dev serves addresses, localhost and the name given by --addr only, and the Host of this request is another; nothing was done")
		case origins.Check(r) != nil:
			devRefuse(w,
				"the request comes from a web page of another origin, and toolledger dev believes whoever calls; nothing was done")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// devHost tells whether a Host names this machine whatever a name server says.
func devHost(host, named string) bool {
	name := host
	if only, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
		name = only
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || name != "" && strings.EqualFold(name, named)
}

// devRefuse answers with a problem document as the ledger's own front does.
func devRefuse(w http.ResponseWriter, detail string) {
	const status, code = http.StatusForbidden, "forbidden"
	body, err := json.Marshal(map[string]any{
		"type": "urn:problem-type:toolledger:" + code, "title": http.StatusText(status), "status": status, "code": code, "detail": detail,
	})
	if err != nil { // a map of texts and a number always encodes
		body = []byte(`{"code":"` + code + `"}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
