/** Calls, besides `new` and `super`, that take error messages. */
const calls = new Set(['boundedJson', 'durableName', 'misuse', 'notNull', 'unwritten']);

/** Leaves error messages unmutated: tests check the codes of errors. */
function shouldIgnore(path) {
  if (!isSentence(path)) return undefined;
  let around = path.parentPath;
  while (around?.isBinaryExpression()) around = around.parentPath;
  const callee = around?.node.callee;
  const isOfError = around?.isNewExpression() || callee?.type === 'Super' || calls.has(callee?.name);
  return isOfError ? 'The text of an error' : undefined;
}

function isSentence(path) {
  if (path.isStringLiteral()) return path.node.value.includes(' ');
  return path.isTemplateLiteral() && path.node.quasis.some(({ value }) => value.raw.includes(' '));
}

export const strykerPlugins = [{ kind: 'Ignore', name: 'error-texts', value: { shouldIgnore } }];
