/* Intrusive circular doubly linked list. A head is an mg_list that links to itself. */
#ifndef MG_BASE_LIST_H
#define MG_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct mg_list {
    struct mg_list *next, *prev;
};

#define MG_LIST_INIT(head) \
    {                      \
        &(head), &(head)   \
    }
#define mg_container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))
/* Safe against removal of the current element. it is a struct mg_list *. */
#define mg_list_each(it, head) \
    for (struct mg_list *it = (head)->next, *it##_next = it->next; it != (head); it = it##_next, it##_next = it->next)

static inline void mg_list_init(struct mg_list *l)
{
    l->next = l->prev = l;
}
static inline bool mg_list_empty(const struct mg_list *head)
{
    return head->next == head;
}
static inline void mg_list_add_tail(struct mg_list *head, struct mg_list *l)
{
    l->prev = head->prev;
    l->next = head;
    head->prev->next = l;
    head->prev = l;
}
/* Removing twice is fine: a removed element links to itself. */
static inline void mg_list_del(struct mg_list *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    l->next = l->prev = l;
}

#endif
