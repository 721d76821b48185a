module standin

go 1.24
