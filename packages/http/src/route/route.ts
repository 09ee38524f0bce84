import type {
  ActionClass,
  ExecutionConfiguration,
  ModelClass,
  Principal,
  ShardIdentifier,
  ShardedId,
} from '@framework/core';
import type * as z from 'zod';

type NoFields = z.ZodObject<Readonly<Record<string, z.ZodNever>>>;

/** The methods of routes. */
export type RouteMethod = 'get' | 'post' | 'put' | 'patch' | 'delete';

/** The input of a request, validated against its route. */
export interface RouteInput<Path extends z.ZodObject, Query extends z.ZodObject, Body extends z.ZodObject> {
  readonly path: z.output<Path>;
  readonly query: z.output<Query>;
  readonly body: z.output<Body>;
}

/** One method of one path: its input, its answers, and its documentation. */
export interface RouteDefinition<
  Path extends z.ZodObject = z.ZodObject,
  Query extends z.ZodObject = z.ZodObject,
  Body extends z.ZodObject = z.ZodObject,
  Answer extends z.ZodType = z.ZodType,
> {
  /** What the route does, in a few words. */
  readonly summary: string;
  readonly description?: string;
  /** The group of routes to which it belongs in the document. Default: none. */
  readonly tag?: string;
  /** The parameters of the path. An `id` of a sharded model also names the shard. Default: none. */
  readonly path?: Path;
  /** The parameters of the query; with `z.strictObject`, others are refused. Default: they are not read. */
  readonly query?: Query;
  /** The JSON body; a number that a binary float would change is accepted by `decimalField` only. Default: the body is not read. */
  readonly body?: Body;
  /** Whether a missing body means the same as `{}`. Default false. */
  readonly bodyOptional?: boolean;
  /** Describes the answers that are not problems, by status. Default: 200. */
  readonly answers?: Readonly<Record<number, string>>;
  /** The schema of their bodies, for the document. */
  readonly answer: Answer;
  /**
   * Whether its answers represent one resource with a version: they have an `ETag`, and a read answers `If-Match` and `If-None-Match`.
   * Default false.
   */
  readonly versioned?: boolean;
  /**
   * Whether its handler passes `expectedVersions` on to what checks them. Only then does a write accept `If-Match`, because nothing else
   * would keep its promise. Default false.
   */
  readonly checksVersion?: boolean;
  /** The shards that a request needs. Default: the shard of the path parameter `id`, if the route has one. */
  shards?(input: RouteInput<Path, Query, Body>): readonly ShardIdentifier[];
  /** The model that it is about, which the log names. Default: none. */
  readonly model?: ModelClass<unknown>;
  /**
   * The action that it executes, which the log names. Only with one does a write accept an `Idempotency-Key`, because nothing else
   * would keep its promise. Default: none.
   */
  readonly action?: ActionClass<never, unknown>;
  /** The media type of its answers. Default `application/json`; a handler of another one returns a `Response`. */
  readonly mediaType?: string;
  /** Refuses requests before their bodies are read, by throwing an error of the table of problems. Default: all go on. */
  readonly guard?: (principal: Principal) => void;
  /** The names of the problems that it can have besides those that follow from its parts. Default: none. */
  readonly problems?: readonly string[];
  /** Whether it needs no token, is not counted as a principal's request, and is not recorded in the audit log. Default false. */
  readonly isPublic?: boolean;
}

/** The part of a request that a handler sees. */
export interface Call<
  Path extends z.ZodObject = z.ZodObject,
  Query extends z.ZodObject = z.ZodObject,
  Body extends z.ZodObject = z.ZodObject,
> extends RouteInput<Path, Query, Body> {
  /** In upper case; `HEAD` for a route of `get` whose answer is sent without its body. */
  readonly method: string;
  readonly headers: Headers;
  /** Makes the signal that is aborted when the client has left before its answer was complete. */
  readonly signal: () => AbortSignal;
  readonly principal: Principal;
  /** The versions of which the resource must have one, from `If-Match`; `undefined` when any will do. */
  readonly expectedVersions: readonly number[] | undefined;
  /** Passes the request's id on to the events of an action, and its idempotency key to the action's effect. */
  readonly execution: ExecutionConfiguration;
  /** Executes an action for the principal, with {@link execution}. */
  readonly execute: <Params, Result>(
    action: ActionClass<Params, Result>,
    params: NoInfer<Params>,
  ) => Promise<Result>;
  /**
   * Parses the id of a model that should exist.
   *
   * @throws EntityNotFoundError `entity-not-found` when it contains no shard, or one that is not configured
   */
  readonly idOf: <T>(model: ModelClass<T>, uuid: string) => ShardedId<T>;
}

/** The answer of a handler. */
export interface Reply<Answer extends z.ZodType = z.ZodType> {
  /** Default 200. */
  readonly status?: number;
  /** The address of the created resource. */
  readonly location?: string;
  /** The resource that the body represents, for a route that is versioned. */
  readonly resource?: { readonly address: string; readonly version: number };
  readonly body: z.input<Answer>;
}

/** A route with its handler; an {@link HttpApi} serves it. */
export interface Route extends RouteDefinition {
  readonly method: RouteMethod;
  /** The path, with parameters in braces, as OpenAPI writes them: `/wallets/{id}`. */
  readonly address: string;
  /** Answers a call whose input is valid. */
  readonly handle: (call: Call) => Promise<Reply | Response>;
}

/** Makes a route from its address, its definition and the handler that answers its calls. */
type MakeRoute = <
  Answer extends z.ZodType,
  Path extends z.ZodObject = NoFields,
  Query extends z.ZodObject = NoFields,
  Body extends z.ZodObject = NoFields,
>(
  address: string,
  definition: RouteDefinition<Path, Query, Body, Answer>,
  handler: (call: Call<Path, Query, Body>) => Reply<Answer> | Response | Promise<Reply<Answer> | Response>,
) => Route;

/** Makes routes: `route.post('/wallets', { body, answer, … }, async ({ body, execute }) => …)`. */
export const route: Readonly<Record<RouteMethod, MakeRoute>> = {
  get: routeOf('get'),
  post: routeOf('post'),
  put: routeOf('put'),
  patch: routeOf('patch'),
  delete: routeOf('delete'),
};

function routeOf(method: RouteMethod): MakeRoute {
  return (address, definition, handler) => ({
    ...(definition as RouteDefinition),
    method,
    address,
    // An HttpApi validates the input against this definition before it calls the handler.
    handle: async (call) => handler(call),
  });
}
