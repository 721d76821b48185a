#include "http/server.h"
bool mg_ws_check(struct mg_call *call, const struct mg_head *head){(void)head;mg_err_set(&call->err,MG_ENOTFOUND,"websockets are not there yet");return false;}
mg_rc mg_ws_run(struct mg_call *call){(void)call;return MG_EINTERNAL;}
void mg_ws_start(struct mg_conn *c, struct mg_call *call){(void)c;(void)call;}
void mg_ws_rx(struct mg_conn *c, const char *p, size_t n){(void)c;(void)p;(void)n;}
void mg_ws_pump(struct mg_conn *c){(void)c;}
void mg_ws_timer(struct mg_conn *c){(void)c;}
void mg_ws_drain(struct mg_conn *c){(void)c;}
void mg_ws_free(struct mg_ws *ws){(void)ws;}
