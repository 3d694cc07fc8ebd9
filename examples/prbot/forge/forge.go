// Package forge is a small code host: branches, and pull requests that are opened as often as somebody asks. It knows no
// idempotency keys, as real ones do not.
//
//	PUT  /repos/{owner}/{name}/branches/{branch}
//	POST /repos/{owner}/{name}/pulls            {"branch":…,"title":…}   201, or 422 where there is no such branch
//	GET  /repos/{owner}/{name}/pulls?branch=…                            200 with a list
package forge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

// Pull is a pull request.
type Pull struct {
	Number int    `json:"number"`
	URL    string `json:"url"`
	Branch string `json:"branch"`
	Title  string `json:"title"`
}

// Server is a forge. It is an http.Handler, and safe for concurrent use.
type Server struct {
	opened func(repo string, p Pull)
	mux    *http.ServeMux

	mu       sync.Mutex
	branches map[string]bool   // by repository and branch
	pulls    map[string][]Pull // by repository
	opens    int
}

// New returns a forge without repositories: the first branch makes one. opened is called with every pull request once it is
// there and before anybody is told, so that a story can let the caller die then; nil does nothing.
func New(opened func(repo string, p Pull)) *Server {
	s := &Server{opened: opened, mux: http.NewServeMux(), branches: map[string]bool{}, pulls: map[string][]Pull{}}
	s.mux.HandleFunc("PUT /repos/{owner}/{name}/branches/{branch...}", s.push)
	s.mux.HandleFunc("POST /repos/{owner}/{name}/pulls", s.open)
	s.mux.HandleFunc("GET /repos/{owner}/{name}/pulls", s.find)
	return s
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Opens is how many pull requests were opened in all.
func (s *Server) Opens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens
}

func repo(r *http.Request) string { return r.PathValue("owner") + "/" + r.PathValue("name") }

func (s *Server) push(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.branches[repo(r)+" "+r.PathValue("branch")] = true
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) open(w http.ResponseWriter, r *http.Request) {
	var p Pull
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&p); err != nil || p.Branch == "" {
		answer(w, http.StatusBadRequest, map[string]string{"message": "branch and title are required"})
		return
	}
	p, ok := s.add(repo(r), p)
	if !ok {
		answer(w, http.StatusUnprocessableEntity, map[string]string{"message": "there is no such branch"})
		return
	}
	if s.opened != nil {
		s.opened(repo(r), p)
	}
	answer(w, http.StatusCreated, p)
}

// add opens a pull request, also where the branch has one.
func (s *Server) add(repo string, p Pull) (Pull, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.branches[repo+" "+p.Branch] {
		return Pull{}, false
	}
	s.opens++
	p.Number = len(s.pulls[repo]) + 1
	p.URL = fmt.Sprintf("https://forge.example/%s/pull/%d", repo, p.Number)
	s.pulls[repo] = append(s.pulls[repo], p)
	return p, true
}

func (s *Server) find(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []Pull{}
	for _, p := range s.pulls[repo(r)] {
		if p.Branch == r.URL.Query().Get("branch") {
			found = append(found, p)
		}
	}
	answer(w, http.StatusOK, found)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone
}
