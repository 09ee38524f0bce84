import { problemOf } from './problem/problem-of.js';
import { problemResponse } from './problem/problem-response.js';
import { requestIdHeader } from './request-id-header.js';
import { RequestFault } from './request/request-fault.js';
import type { WalletApp } from './wallet-app-env.js';

/** Answers methods that a path does not have: OPTIONS with those it has, others with a problem. Call it last. */
export function answerOtherMethods(app: WalletApp): void {
  const routes = app.routes.filter(({ method, path }) => method !== 'ALL' && !path.includes('*'));
  for (const [path, ofPath] of Map.groupBy(routes, (route) => route.path)) {
    const methods = ofPath.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
    const allow = [...new Set(methods), 'OPTIONS'].join(', ');
    app.all(path, ({ req, var: { requestId } }) => {
      if (req.method === 'OPTIONS') {
        return new Response(null, { status: 204, headers: { allow, [requestIdHeader]: requestId } });
      }
      const fault = new RequestFault('method-not-allowed', `${req.method} is not among ${allow}`);
      const response = problemResponse(problemOf(fault), requestId);
      response.headers.set('allow', allow);
      return response;
    });
  }
}
