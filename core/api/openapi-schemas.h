/* The schemas of /openapi.json: one JSON object, name to schema. */
#ifndef MG_API_OPENAPI_SCHEMAS_H
#define MG_API_OPENAPI_SCHEMAS_H

extern const char mg_openapi_schemas[];

#endif
