"""An independent run of the training recipe, in scikit-learn.

    python reference.py DATA.json  ->  one JSON object on standard output

DATA.json holds train, validation and test rows (features, and labels 0 or 1 for
each head) and the recipe. Scaler, components, network, loss and optimiser are
scikit-learn's; early stopping and the ensemble are done here as the recipe says.
It has no dropout, so the recipe must have none.

Exit code 77: scikit-learn is not installed.
"""

import json
import sys

try:
    import numpy as np
    from sklearn.decomposition import PCA
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler
except ImportError:
    sys.exit(77)

with open(sys.argv[1]) as f:
    data = json.load(f)
recipe = data["recipe"]
part = {name: (np.array(data[name]["features"]), np.array(data[name]["labels"])) for name in ("train", "validation", "test")}

scaler = StandardScaler().fit(part["train"][0])
pca = PCA(n_components=recipe["pca_dim"], svd_solver="randomized", iterated_power=5, random_state=42)
pca.fit(scaler.transform(part["train"][0]))
x = {name: pca.transform(scaler.transform(features)) for name, (features, _) in part.items()}
y = {name: labels for name, (_, labels) in part.items()}

members = []
for seed in range(recipe["seed"], recipe["seed"] + recipe["members"]):
    net = MLPClassifier(
        hidden_layer_sizes=recipe["trunk_hidden"],
        activation="relu",
        solver="adam",
        # scikit-learn divides the penalty by the rows of the batch.
        alpha=recipe["weight_decay"] * recipe["batch_size"],
        batch_size=recipe["batch_size"],
        learning_rate_init=recipe["learning_rate"],
        random_state=seed,
        shuffle=True,
    )
    best, stale, kept = np.inf, 0, None
    for _ in range(recipe["epochs"]):
        net.partial_fit(x["train"], y["train"], classes=list(range(y["train"].shape[1])))
        p = net.predict_proba(x["validation"])
        loss = np.mean([log_loss(y["validation"][:, h], p[:, h], labels=[0, 1]) for h in range(p.shape[1])])
        stale += 1
        if loss < best - recipe["min_improvement"]:
            best, stale, kept = loss, 0, net.predict_proba(x["test"])
        if stale >= recipe["patience"]:
            break
    members.append((best, kept))
members.sort(key=lambda m: m[0])
mean = np.mean([p for _, p in members[: recipe["keep"]]], axis=0)
json.dump(
    {
        "auc": [roc_auc_score(y["test"][:, h], mean[:, h]) for h in range(mean.shape[1])],
        "variance": float(pca.explained_variance_ratio_.sum()),
        "validation_loss": [m[0] for m in members],
    },
    sys.stdout,
)
